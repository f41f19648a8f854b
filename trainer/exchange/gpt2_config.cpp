#include <exchange/gpt2_config.h>
#include <state/files.h>

#include <array>
#include <stdexcept>

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLongestConfig = 1 << 20;  // [bytes]

// A size under its name in config.json. The limits keep products of sizes small.
struct Size {
  const char* name;
  int64_t GPT2Options::*member;
  int64_t most;
};
constexpr std::array kSizes{Size{"vocab_size", &GPT2Options::vocabulary, 100'000'000},
                            Size{"n_positions", &GPT2Options::context, 100'000'000},
                            Size{"n_embd", &GPT2Options::d_model, 1'000'000},
                            Size{"n_layer", &GPT2Options::layers, 10'000},
                            Size{"n_head", &GPT2Options::heads, 1'000'000},
                            Size{"n_inner", &GPT2Options::d_ff, 10'000'000}};

// What makes a GPT-2 compute something else, and what ours has. The first value is also the default
// of transformers.
struct Variant {
  const char* name;
  std::vector<Json> ours;
};
const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{// The same function: GELU by tanh.
                                        {"activation_function", {"gelu_new", "gelu_pytorch_tanh"}},
                                        {"layer_norm_epsilon", {1e-5}},
                                        {"scale_attn_weights", {true}},
                                        {"scale_attn_by_inverse_layer_idx", {false}},
                                        {"add_cross_attention", {false}},
                                        {"tie_word_embeddings", {true}}};
  return all;
}

Json parse(const std::string& path) {
  const Json json = Json::parse(read_text(path, kLongestConfig), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) throw std::runtime_error(path + ": is no JSON object");
  return json;
}

int64_t size_of(const Json& config, const Size& size) {
  const Json value = config.value(size.name, Json());
  const bool fits = value.is_number_integer() && value >= 1 && value <= size.most;
  if (!fits)
    throw std::runtime_error(std::string(size.name) + " is " + value.dump() +
                             ", not a number from 1 to " + std::to_string(size.most));
  return value;
}

void check_variant(const Json& config) {
  const Json type = config.value("model_type", Json());
  if (type != "gpt2") throw std::runtime_error("model_type is " + type.dump() + ", not \"gpt2\"");
  for (const auto& [name, ours] : variants()) {
    const Json value = config.value(name, ours[0]);
    bool known = false;
    for (const Json& one : ours)
      known = known || value == one;
    if (!known)
      throw std::runtime_error(std::string(name) + " is " + value.dump() +
                               ", and this program's GPT-2 has " + ours[0].dump());
  }
}

}  // namespace

Json gpt2_config(const GPT2Options& options) {
  Json config{{"architectures", {"GPT2LMHeadModel"}}, {"model_type", "gpt2"}};
  for (const auto& [name, member, most] : kSizes)
    config[name] = options.*member;
  config["n_ctx"] = options.context;  // an older name, which others still read
  for (const auto& [name, ours] : variants())
    config[name] = ours[0];
  for (const char* dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"})
    config[dropout] = 0.0;
  config["bos_token_id"] = config["eos_token_id"] = nullptr;
  config["torch_dtype"] = "float32";
  return config;
}

GPT2Options read_gpt2_config(const std::string& folder) {
  const std::string path = folder + '/' + kConfigFile;
  Json config = parse(path);
  GPT2Options options{};
  try {
    check_variant(config);
    if (config.value("n_inner", Json()).is_null() && config.contains("n_embd"))
      config["n_inner"] = 4 * size_of(config, kSizes[2]);
    for (const Size& size : kSizes)
      options.*size.member = size_of(config, size);
    if (options.d_model % options.heads != 0)
      throw std::runtime_error("n_head " + std::to_string(options.heads) +
                               " does not divide n_embd " + std::to_string(options.d_model));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
  return options;
}

std::string difference_of_sizes(const GPT2Options& file, const std::string& model,
                                const GPT2Options& own) {
  for (const auto& [name, member, most] : kSizes)
    if (file.*member != own.*member)
      return std::string(name) + ' ' + std::to_string(file.*member) + ", and " + model + " has " +
             std::to_string(own.*member);
  return "";
}

}  // namespace fsdp
