#include <base/plain_error.h>
#include <base/text.h>
#include <exchange/hugging_face_config.h>
#include <state/files.h>
#include <state/untrusted_json.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <stdexcept>

namespace fsdp {
namespace {

using Json = nlohmann::json;
using Texts = std::map<std::string, std::string>;

// Number of bytes of the largest config.json that is read.
constexpr int64_t kLongestConfig = 1 << 20;

// A member of config.json that can change what a model computes.
struct Variant {
  std::string name;
  // The values of the member with which a model computes what our model computes.
  std::vector<Json> ours;
  // The value that transformers uses if the member is missing.
  Json missing = ours.at(0);
};

// A model_type of transformers, and the model of this course that computes the same.
struct ModelType {
  std::string name, architecture, family;
  Texts names;  // name of a field of our model's shape -> name of the member of config.json
  std::vector<Variant> variants;
  // The members that set dropout. An export writes 0 for each of them; an import ignores them.
  std::vector<std::string> dropouts;
};

// The prefix under which this file keeps the members of rope_scaling at the top level of a config:
// "rope_scaling.factor".
const std::string kRope = "rope_scaling.";

std::vector<ModelType> make_model_types() {
  const ModelType gpt2{"gpt2",
                       "GPT2LMHeadModel",
                       "gpt2",
                       {{"vocabulary", "vocab_size"},
                        {"context", "n_positions"},
                        {"d_model", "n_embd"},
                        {"layers", "n_layer"},
                        {"heads", "n_head"},
                        {"d_ff", "n_inner"},
                        {"tied_head", "tie_word_embeddings"}},
                       // "gelu_new" and "gelu_pytorch_tanh" both mean GELU with the tanh
                       // approximation.
                       {{"activation_function", {"gelu_new", "gelu_pytorch_tanh"}},
                        {"layer_norm_epsilon", {1e-5}},
                        {"scale_attn_weights", {true}},
                        {"scale_attn_by_inverse_layer_idx", {false}},
                        {"add_cross_attention", {false}}},
                       {"resid_pdrop", "embd_pdrop", "attn_pdrop"}};
  const ModelType llama{"llama",
                        "LlamaForCausalLM",
                        "llama",
                        {{"vocabulary", "vocab_size"},
                         {"context", "max_position_embeddings"},
                         {"d_model", "hidden_size"},
                         {"layers", "num_hidden_layers"},
                         {"heads", "num_attention_heads"},
                         {"d_ff", "intermediate_size"},
                         {"kv_heads", "num_key_value_heads"},
                         {"rope_theta", "rope_theta"},
                         {"norm_eps", "rms_norm_eps"},
                         {"tied_head", "tie_word_embeddings"},
                         {"head_dim", "head_dim"},
                         {"rope_factor", kRope + "factor"},
                         {"rope_low", kRope + "low_freq_factor"},
                         {"rope_high", kRope + "high_freq_factor"},
                         {"rope_context", kRope + "original_max_position_embeddings"}},
                        {{"hidden_act", {"silu", "swish"}},
                         {"attention_bias", {false}},
                         {"mlp_bias", {false}},
                         {"partial_rotary_factor", {1.0}},
                         {"quantization_config", {Json()}}},
                        {"attention_dropout"}};
  ModelType qwen2 = llama, mistral = llama;
  qwen2.name = "qwen2";
  qwen2.architecture = "Qwen2ForCausalLM";
  qwen2.variants.push_back({"use_sliding_window", {false}});
  ModelType qwen3 = qwen2;
  qwen3.name = "qwen3";
  qwen3.architecture = "Qwen3ForCausalLM";
  mistral.name = "mistral";
  return {gpt2, llama, qwen2, qwen3, mistral};
}

const std::vector<ModelType>& model_types() {
  static const std::vector<ModelType> all = make_model_types();
  return all;
}

const ModelType& type_of(const ModelShape& shape) {
  const auto* llama = std::get_if<TransformerLMOptions>(&shape);
  return model_types()[llama == nullptr ? 0 : llama->qkv_bias ? 2 : llama->qk_norm ? 3 : 1];
}

const ModelType& type_of(const Json& config) {
  std::string known;
  for (const ModelType& type : model_types()) {
    if (config.value("model_type", Json()) == type.name) return type;
    known += (known.empty() ? "" : ", ") + type.name;
  }
  throw std::runtime_error("model_type is " + config.value("model_type", Json()).dump() +
                           "; known are " + known);
}

// Throws std::runtime_error unless `value`, which the member `name` of config.json has, is one of
// `ours`: the values with which a model computes what our model computes.
void check(const std::string& name, const Json& value, const std::vector<Json>& ours) {
  for (const Json& one : ours)
    if (value == one) return;
  throw std::runtime_error(name + " is " + value.dump() + ", and this program has " +
                           ours[0].dump());
}

// Checks the settings of rotary positions, and copies them to the top level of `config`. Newer
// files have them in the member rope_parameters, older files in rope_scaling. Copies rope_theta,
// which older files have at the top level, under its own name, and the members of Llama 3's scaling
// under names that begin with kRope.
void take_rope(Json& config) {
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const Json rope = config.value(name, Json());
    if (!rope.is_object()) {
      check(name, rope, {Json()});
      continue;
    }
    const Json type = rope.value("rope_type", rope.value("type", Json()));
    check(std::string(name) + ".rope_type", type, {"default", "llama3"});
    if (rope.contains("rope_theta")) config["rope_theta"] = rope["rope_theta"];
    if (type != "llama3") continue;
    for (const char* member :
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      if (!rope.contains(member)) throw std::runtime_error(std::string(name) + " has no " + member);
      config[kRope + member] = rope[member];
    }
  }
}

// If the model is a Mistral with a sliding window that is shorter than its context, uses the window
// as the context: in rows that are not longer than the window, a position sees what it would see
// without the window. If the member sliding_window is missing, the window is 4096.
void take_window(Json& config, const ModelType& type) {
  if (type.name != "mistral") return;
  const Json window = config.value("sliding_window", Json(4096));
  const Json context = config.value("max_position_embeddings", Json(4096 * 32));
  if (window.is_number_integer() && window > 0 && context.is_number_integer() && window < context)
    config["max_position_embeddings"] = window;
}

// Fills in the members of `config` whose default depends on other members, and calls take_rope()
// and take_window(). Removes head_dim if it is the usual width of a head, which our model computes
// itself: hidden_size / num_attention_heads.
void take_defaults(Json& config, const ModelType& type) {
  constexpr int64_t kMost = 1'000'000'000;
  const auto number = [&](const char* name) {
    const Json value = config.value(name, Json());
    return value.is_number_integer() && value >= 0 && value <= kMost ? value.get<int64_t>() : 0;
  };
  const auto is_null = [&](const char* name) { return config.value(name, Json()).is_null(); };
  if (type.family == "gpt2") {
    if (is_null("n_inner") && !is_null("n_embd")) config["n_inner"] = 4 * number("n_embd");
    return;
  }
  take_rope(config);
  take_window(config, type);
  const int64_t heads = number("num_attention_heads");
  if (is_null("num_key_value_heads"))
    config["num_key_value_heads"] = type.name == "llama" ? Json(heads) : Json();
  if (type.name == "qwen3" && is_null("head_dim")) config["head_dim"] = 128;
  const bool usual = heads > 0 && number("head_dim") * heads == number("hidden_size");
  if (is_null("head_dim") || usual) config.erase("head_dim");
  if (!config.contains("rms_norm_eps")) config["rms_norm_eps"] = 1e-6;
}

ModelShape to_shape(Json config) {
  const ModelType& type = type_of(config);
  for (const auto& [name, ours, missing] : type.variants)
    check(name, config.value(name, missing), ours);
  take_defaults(config, type);
  Texts values;
  for (const auto& [own, theirs] : type.names)
    if (config.contains(theirs)) values[own] = config[theirs].dump();
  if (type.name == "qwen2") values["qkv_bias"] = "true";
  if (type.name == "qwen3") values["qk_norm"] = "true";
  return make_shape(type.family, values, type.names);
}

// Writes the members of a Llama's config.json to which no single field of our model's shape
// corresponds. These are head_dim, the width of a head, because transformers would not compute the
// right one for each model_type, and rope_scaling, which is an object.
void complete_llama(nlohmann::ordered_json& config, const ModelShape& shape) {
  const auto* llama = std::get_if<TransformerLMOptions>(&shape);
  if (llama == nullptr) return;
  config["head_dim"] = llama->width_of_head();
  nlohmann::ordered_json rope{{"rope_type", "llama3"}};
  for (auto member = config.begin(); member != config.end();) {
    const bool is_rope = member.key().starts_with(kRope);
    if (is_rope) rope[member.key().substr(kRope.size())] = *member;
    member = is_rope ? config.erase(member) : std::next(member);
  }
  if (rope.size() > 1) config["rope_scaling"] = rope;
}

}  // namespace

nlohmann::ordered_json hugging_face_config(const ModelShape& shape,
                                           const std::vector<int64_t>& ends) {
  const ModelType& type = type_of(shape);
  nlohmann::ordered_json config{{"architectures", {type.architecture}}, {"model_type", type.name}};
  for (const auto& [own, value] : fields_of(shape))
    if (const auto theirs = type.names.find(own); theirs != type.names.end())
      config[theirs->second] = Json::parse(value);
  // n_ctx is an older name of n_positions.
  if (config.contains("n_positions")) config["n_ctx"] = config["n_positions"];
  complete_llama(config, shape);
  for (const auto& [name, ours, missing] : type.variants)
    if (!ours[0].is_null()) config[name] = ours[0];
  for (const std::string& dropout : type.dropouts)
    config[dropout] = 0.0;
  config["bos_token_id"] = config["eos_token_id"] = nullptr;
  if (ends.size() == 1) config["eos_token_id"] = ends[0];
  if (ends.size() > 1) config["eos_token_id"] = ends;
  config["torch_dtype"] = "float32";
  return config;
}

ModelShape read_hugging_face_config(const std::string& folder) {
  const FolderKind kind = kind_of_folder(folder);
  if (kind == FolderKind::missing)
    throw std::runtime_error(folder +
                             ": no such folder; a model of the hub is first downloaded, for "
                             "example by: hf download NAME --local-dir FOLDER");
  if (kind == FolderKind::file)
    throw std::runtime_error(folder + ": is a file; give the folder that has " + kConfigFile);
  if (kind != FolderKind::hugging_face)
    throw std::runtime_error(folder + ": has no " + kConfigFile +
                             "; give a folder that save_pretrained() of transformers or ./fsdp "
                             "export --format hf has written");
  const std::string path = folder + '/' + kConfigFile;
  const std::string text = read_text(path, kLongestConfig);
  try {
    return to_shape(read_json_object<Json>(text));
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + one_line(plain_text(error)));
  }
}

std::string difference_of_shapes(const ModelShape& file, const std::string& model,
                                 const ModelShape& own) {
  const ModelType& type = type_of(file);
  if (file.index() != own.index())
    return "model_type " + type.name + ", and " + model + " is a " + family_of(own);
  const auto fields = fields_of(file), own_fields = fields_of(own);
  const std::string none = "none";
  const auto value_in = [&](const auto& all, const std::string& name) {
    const auto found = std::ranges::find(all, name, [](const auto& field) { return field.first; });
    return found == all.end() ? none : found->second;
  };
  for (const auto* some : {&fields, &own_fields}) {
    for (const auto& [name, unused] : *some) {
      const std::string value = value_in(fields, name), ours = value_in(own_fields, name);
      if (value == ours || name == "dropout") continue;
      const auto theirs = type.names.find(name);
      return (theirs == type.names.end() ? name : theirs->second) + ' ' + value + ", and " + model +
             " has " + ours;
    }
  }
  return "";
}

}  // namespace fsdp
