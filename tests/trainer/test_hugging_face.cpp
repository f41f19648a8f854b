#include <exchange/hugging_face_config.h>
#include <exchange/hugging_face_folder.h>
#include <nn/lora.h>
#include <testing/multi_rank.h>

#include <functional>

#include <common/expect_text.h>
#include <common/temporary_folder.h>
#include "hugging_face_files.h"
#include "saved_state.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;
using Change = std::function<void(HuggingFaceFiles&)>;

ModelState zeros_of(ModelState state) {
  for (StateRange& range : state.ranges)
    range.value.zero_();
  return state;
}

const std::vector<std::string> kTinyModels{"gpt2-tiny", kUntiedGPT2, kTinyLlama, kTinyQwen2,
                                           kTinyQwen3};

TEST(HuggingFace, hugging_face_tensors_lists_the_names_and_shapes_of_the_parameters_of_a_model) {
  for (const std::string& name : kTinyModels)
    EXPECT_EQ(parameters_of(hugging_face_tensors(model_shape(name))),
              state_without_ranges(distinct_parameters(*tiny(name))).parameters);
}

TEST(HuggingFace, linear_layers_returns_the_layers_that_can_have_an_adapter) {
  for (const std::string& name : kTinyModels) {
    const ModelShape shape = model_shape(name);
    const bool tied = std::visit([](const auto& options) { return options.tied_head; }, shape);
    const std::string pattern = tied ? "^(?!lm_head)" : ".";  // add_lora() refuses a tied head
    EXPECT_EQ(linear_layers(shape), add_lora(*tiny(name), pattern, {.rank = 1, .alpha = 1}))
        << name;
  }
}

TEST(HuggingFace, a_git_lfs_pointer_in_place_of_the_weights_is_refused_with_advice) {
  const TemporaryFolder folder;
  files_of(*tiny_gpt2()).write(folder.path());
  const auto path = folder.write("model.safetensors",
                                 "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
  EXPECT_CONTAINS(error_of([&] { HuggingFaceFolder{folder.path()}; }),
                  path + ": is only a pointer of Git LFS to the file; fetch the file with ");
}

TEST(HuggingFace, tied_names_returns_the_tensor_names_of_parameters_that_the_model_ties) {
  run_ranks(1, [](TestRank&) {
    for (const std::string& name : kTinyModels) {
      std::map<const void*, std::string> first;
      std::map<std::string, std::string> tied;
      for (const auto& item : make_model(name)->named_parameters()) {
        const auto [other, is_new] = first.emplace(item.value().unsafeGetTensorImpl(), item.key());
        if (!is_new) tied[item.key()] = other->second;
      }
      EXPECT_EQ(tied_names(name), tied) << name;
    }
  });
}

TEST(HuggingFace, a_hugging_face_config_describes_the_model_from_which_it_was_made) {
  const TemporaryFolder folder;
  for (const std::string& name : kTinyModels) {
    const ModelShape shape = model_shape(name);
    folder.write("config.json", hugging_face_config(shape).dump());
    EXPECT_EQ(read_hugging_face_config(folder.path()), shape);
    files_of(*tiny(name)).write(folder.path());
    EXPECT_EQ(read_hugging_face_config(folder.path()), shape);
  }
  folder.write("config.json",
               R"({"model_type": "gpt2", "vocab_size": 61, "n_positions": 19, "n_embd": 35,
                   "n_layer": 3, "n_head": 5, "n_inner": null})");
  const auto difference = [&](const std::string& name) {
    return difference_of_shapes(read_hugging_face_config(folder.path()), name, model_shape(name));
  };
  EXPECT_EQ(difference("gpt2-tiny"), "n_inner 140, and gpt2-tiny has 121");
  EXPECT_EQ(difference("small"), "model_type gpt2, and small is a llama");
}

TEST(HuggingFace, members_of_newer_and_older_hugging_face_configs_are_read) {
  const TemporaryFolder folder;
  HuggingFaceFiles files = files_of(*tiny(kTinyLlama));
  for (const char* name : {"num_key_value_heads", "rms_norm_eps", "tie_word_embeddings"})
    files.config.erase(name);
  files.config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000}};
  files.config["head_dim"] = 6;
  folder.write("config.json", files.config.dump());
  EXPECT_EQ(model_name(read_hugging_face_config(folder.path())),
            "llama:vocabulary=61,context=19,d_model=36,layers=2,heads=6,d_ff=33,kv_heads=6,"
            "rope_theta=5e+05,norm_eps=1e-06,qkv_bias=false,tied_head=false");
  files.config["model_type"] = "mistral";
  files.config["num_key_value_heads"] = 3;
  files.config["sliding_window"] = nullptr;
  folder.write("config.json", files.config.dump());
  EXPECT_CONTAINS(model_name(read_hugging_face_config(folder.path())), "kv_heads=3,");
}

nlohmann::ordered_json llama3_scaling(double low, double high) {
  return {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", low},
          {"high_freq_factor", high},
          {"original_max_position_embeddings", 16}};
}

TEST(HuggingFace, a_llama_config_with_rope_scaling_or_head_dim_is_read_and_written) {
  const TemporaryFolder folder;
  HuggingFaceFiles files = files_of(*tiny(kTinyLlama));
  const auto name = [&] {
    folder.write("config.json", files.config.dump());
    const ModelShape shape = read_hugging_face_config(folder.path());
    folder.write("config.json", hugging_face_config(shape).dump());
    EXPECT_EQ(read_hugging_face_config(folder.path()), shape);
    return model_name(shape);
  };
  files.config["rope_scaling"] = llama3_scaling(1.0, 4.0);
  files.config["head_dim"] = 8;
  EXPECT_TRUE(
      name().ends_with(",tied_head=false,head_dim=8,rope_factor=8.0,rope_low=1.0,"
                       "rope_high=4.0,rope_context=16"))
      << name();
  files.config.erase("rope_scaling");
  files.config["model_type"] = "mistral";
  files.config["sliding_window"] = 12;
  EXPECT_CONTAINS(name(), ",context=12,");
  files.config["sliding_window"] = 4096;
  EXPECT_CONTAINS(name(), ",context=19,");
}

TEST(HuggingFace, pytorch_model_bin_and_names_of_the_hub_are_refused_with_advice) {
  const TemporaryFolder folder;
  files_of(*tiny(kTinyLlama)).write(folder.path());
  fs::rename(folder.path() + "/model.safetensors", folder.path() + "/pytorch_model.bin");
  EXPECT_CONTAINS(error_of([&] { HuggingFaceFolder read(folder.path()); }),
                  "/pytorch_model.bin: is not read; load the folder with transformers");
  EXPECT_CONTAINS(
      error_of([] { HuggingFaceFolder read("meta-llama/Llama-3.2-1B"); }),
      "meta-llama/Llama-3.2-1B: no such folder; a model of the hub is first downloaded");
}

// A change of the model's files, and the error that reading the changed files causes. `text` leaves
// out the file name with which the error begins.
struct Refused {
  Change change;
  std::string text;
};

void expect_refused(const std::vector<Refused>& all, const std::string& file,
                    const std::string& name = "gpt2-tiny") {
  const auto model = tiny(name);
  for (const auto& [change, text] : all) {
    const TemporaryFolder folder;
    HuggingFaceFiles files = files_of(*model);
    change(files);
    files.write(folder.path());
    const std::string said = error_of([&] { HuggingFaceFolder read(folder.path()); });
    EXPECT_EQ(said, folder.path() + '/' + file + ": " + text);
  }
}

TEST(HuggingFace, hugging_face_files_with_tensors_that_differ_from_the_config_are_refused) {
  const std::string bias = "transformer.h.2.attn.c_attn.bias";
  expect_refused(
      {{[&](auto& files) { files.remove(bias); }, "has no tensor " + bias},
       {[&](auto& files) { files.remove("transformer.wte.weight"); },
        "has no tensor transformer.wte.weight"},
       {[&](auto& files) { files.at(bias) = at::zeros({104}); },
        "tensor " + bias + ": has the shape [104], not [105]"},
       {[](auto& files) {
          auto& weight = files.at("transformer.h.0.mlp.c_fc.weight");
          weight = weight.t().contiguous();
        },
        "tensor transformer.h.0.mlp.c_fc.weight: has the shape [121,35], not [35,121]"},
       {[&](auto& files) { files.at(bias) = at::zeros({105}, at::kLong); },
        "tensor " + bias + ": has a dtype that is not F32, F16 or BF16"},
       {[](auto& files) { files.add("transformer.h.3.ln_1.bias", at::zeros({35})); },
        "tensor transformer.h.3.ln_1.bias: belongs to no parameter of the model that config.json "
        "describes"},
       {[](auto& files) {
          files.add("wpe.weight", at::zeros({19, 35}));
        },
        "tensor wpe.weight: is also here as transformer.wpe.weight"},
       {[](auto& files) {
          files.add("lm_head.weight", at::zeros({35, 61}));
        },
        "tensor lm_head.weight: has the shape [35,61], not [61,35]"}},
      "model.safetensors");
}

Change with_member(const std::string& name, const nlohmann::ordered_json& value) {
  return [=](HuggingFaceFiles& files) { files.config[name] = value; };
}

TEST(HuggingFace, a_gpt2_config_that_is_invalid_or_describes_another_computation_is_refused) {
  expect_refused(
      {{with_member("model_type", "bert"),
        R"(model_type is "bert"; known are gpt2, llama, qwen2, qwen3, mistral)"},
       {[](auto& files) { files.config.erase("model_type"); },
        "model_type is null; known are gpt2, llama, qwen2, qwen3, mistral"},
       {[](auto& files) { files.config.erase("n_embd"); }, "n_embd is missing"},
       {with_member("n_layer", 1000000000), "n_layer is 1000000000, not a number from 1 to 10000"},
       {with_member("n_layer", -1), "n_layer is -1, not a number from 1 to 10000"},
       {with_member("vocab_size", "61"), R"(vocab_size is "61", not a number from 1 to 100000000)"},
       {with_member("n_head", 4), "n_head 4 does not divide n_embd 35"},
       {with_member("activation_function", "relu"),
        R"(activation_function is "relu", and this program has "gelu_new")"},
       {with_member("layer_norm_epsilon", 1e-6),
        "layer_norm_epsilon is 1e-06, and this program has 1e-05"},
       {with_member("scale_attn_by_inverse_layer_idx", true),
        "scale_attn_by_inverse_layer_idx is true, and this program has false"}},
      "config.json");
}

TEST(HuggingFace, a_llama_config_that_is_invalid_or_describes_another_computation_is_refused) {
  expect_refused(
      {{with_member("rope_scaling", {{"type", "linear"}, {"factor", 2.0}}),
        R"(rope_scaling.rope_type is "linear", and this program has "default")"},
       {with_member("rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 5e5}}),
        R"(rope_parameters.rope_type is "yarn", and this program has "default")"},
       {with_member("rope_parameters", {{"rope_type", "llama3"}, {"factor", 8.0}}),
        "rope_parameters has no low_freq_factor"},
       {with_member("rope_scaling", llama3_scaling(4.0, 4.0)),
        "rope_scaling.high_freq_factor is not above rope_scaling.low_freq_factor"},
       {with_member("hidden_act", "gelu"), R"(hidden_act is "gelu", and this program has "silu")"},
       {with_member("attention_bias", true), "attention_bias is true, and this program has false"},
       {with_member("mlp_bias", true), "mlp_bias is true, and this program has false"},
       {with_member("head_dim", 5), "head_dim is odd, but rotary positions need an even number"},
       {with_member("quantization_config", {{"bits", 4}}),
        R"(quantization_config is {"bits":4}, and this program has null)"},
       {with_member("num_key_value_heads", 4),
        "num_key_value_heads 4 does not divide num_attention_heads 6"},
       {[](auto& files) {
          files.config["num_attention_heads"] = 12;
          files.config.erase("head_dim");
        },
        "hidden_size / num_attention_heads is odd, but rotary positions need an even number"},
       {with_member("rms_norm_eps", 0), "rms_norm_eps is 0, not a number above 0 and below 1e12"},
       {with_member("tie_word_embeddings", "no"),
        R"(tie_word_embeddings is "no", not true or false)"}},
      "config.json", kTinyLlama);
  expect_refused({{with_member("use_sliding_window", true),
                   "use_sliding_window is true, and this program has false"},
                  {with_member("num_key_value_heads", nullptr),
                   "num_key_value_heads is null, not a number from 1 to 1000000"}},
                 "config.json", kTinyQwen2);
}

TEST(HuggingFace, hugging_face_files_that_differ_from_their_index_are_refused) {
  const std::string norm = "model.norm.weight", index = "model.safetensors.index.json";
  const TemporaryFolder folder;
  const std::string path = folder.path() + '/';
  HuggingFaceFiles files = files_of(*tiny(kTinyLlama));
  files.files = 2;
  const auto said = [&](const std::string& place) {
    files.write(folder.path());
    auto json = nlohmann::json::parse(std::ifstream(path + index));
    json["weight_map"][norm] = place;
    if (place.empty()) json["weight_map"].erase(norm);
    folder.write(index, json.dump());
    return error_of([&] { HuggingFaceFolder read(folder.path()); });
  };
  const std::string own = files.file(files.place_of(norm));
  const std::string other = files.file(files.place_of(norm) + 1);
  EXPECT_EQ(said("../" + own), path + index + ": tensor " + norm + ": is in ../" + own +
                                   ", which is not in this folder");
  EXPECT_EQ(said("absent"), path + "absent: can't be read: No such file or directory");
  EXPECT_EQ(said(other), path + other + ": tensor " + norm + ": is missing, but " + index +
                             " names this file for it");
  EXPECT_EQ(said(""), path + own + ": tensor " + norm + ": is here, but " + index +
                          " does not name this file for it");
  files.remove(norm);
  files.write(folder.path());
  EXPECT_EQ(error_of([&] { HuggingFaceFolder read(folder.path()); }),
            path + index + ": has no tensor " + norm);
  folder.write(index, "{}");
  EXPECT_EQ(error_of([&] { HuggingFaceFolder read(folder.path()); }),
            path + index + ": has no weight_map from tensors to files");
}

TEST(HuggingFace, truncated_and_missing_hugging_face_files_are_refused) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/model.safetensors";
  const auto said = [&] { return error_of([&] { HuggingFaceFolder read(folder.path()); }); };
  EXPECT_CONTAINS(said(), folder.path() + ": has no config.json; give a folder that ");
  files_of(*tiny_gpt2()).write(folder.path());
  const HuggingFaceFolder whole(folder.path());
  for (const auto size : {fs::file_size(file) - 4, uintmax_t{1000}, uintmax_t{0}}) {
    fs::resize_file(file, size);
    EXPECT_TRUE(said().starts_with(file + ": ")) << said();
  }
  fs::remove(file);
  EXPECT_EQ(said(), file + ": can't be read: No such file or directory");
  folder.write("config.json", "{");
  EXPECT_EQ(said(), folder.path() + "/config.json: is no JSON object");
  const std::string deep = std::string(1 << 18, '[') + std::string(1 << 18, ']');
  folder.write("config.json", R"({"model_type":)" + deep + '}');
  EXPECT_EQ(said(), folder.path() + "/config.json: is JSON that is nested too deep");
  folder.write("config.json", R"({"model_type":")" + std::string(1 << 18, 'x') + "\"}");
  EXPECT_LT(said().size(), 600 + folder.path().size());
}

// The test truncates the file after HuggingFaceFolder has read and compared its header. It keeps
// exactly the bytes that the range needs: then the range can be read. With one byte fewer, reading
// the range throws.
TEST(HuggingFace, only_the_bytes_that_a_range_needs_are_read_from_a_hugging_face_file) {
  struct Case {
    std::string model, name, theirs;
    int64_t left_over;
  };
  // The range is the first 100 elements of a parameter of our model. The first parameter, [61, 35],
  // is stored as it is. The second, [121, 35], is stored transposed, as [35, 121], so three of our
  // rows are three stored columns. The third, [36, 36], is stored with permuted rows: our rows 0 to
  // 2 are the stored rows 0, 3 and 1.
  for (const auto& [model_name, name, theirs, left_over] : std::vector<Case>{
           {"gpt2-tiny", "wte.weight", "transformer.wte.weight", 61 * 35 - 100},
           {"gpt2-tiny", "h.1.mlp.c_fc.weight", "transformer.h.1.mlp.c_fc.weight", 121 - 3},
           {kTinyLlama, "layers.1.attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight",
            36 * 36 - 4 * 36}}) {
    const TemporaryFolder folder;
    const auto model = tiny(model_name);
    HuggingFaceFiles files = files_of(*model);
    const at::Tensor last = files.at(theirs);
    files.remove(theirs);
    files.add(theirs, last);
    files.write(folder.path());
    const HuggingFaceFolder saved(folder.path());
    const std::string file = folder.path() + "/model.safetensors";
    const StateRange range{name, 0, 100, at::zeros({100}), {}, {}, {}};
    fs::resize_file(file, fs::file_size(file) - static_cast<uintmax_t>(4 * left_over));
    saved.read(range);
    const at::Tensor own = model->named_parameters()[name].detach();
    EXPECT_TRUE(range.value.equal(own.reshape({-1}).slice(0, 0, 100))) << name;
    fs::resize_file(file, fs::file_size(file) - 1);
    EXPECT_EQ(error_of([&] { saved.read(range); }), file + ": ends too early");
  }
}

MULTI_RANK_SUITE(HuggingFaceOnRanks);

const std::vector<std::pair<std::string, Change>> kForms{
    {"as saved", [](HuggingFaceFiles&) {}},
    {"in three files", [](HuggingFaceFiles& files) { files.files = 3; }},
    {"with tied head and buffers",
     [](HuggingFaceFiles& files) {
       if (files.place_of("lm_head.weight") == files.names.size())
         files.add("lm_head.weight", files.tensors[0]);
       files.add("model.layers.0.self_attn.rotary_emb.inv_freq", at::ones({3}));
       files.add("transformer.h.0.attn.bias", at::ones({1, 1, 19, 19}, at::kByte));
       files.add("transformer.h.0.attn.masked_bias", at::full({}, -1e4));
     }},
    {"without prefix",
     [](HuggingFaceFiles& files) {
       for (std::string& name : files.names)
         if (!name.starts_with("lm_head")) name.erase(0, name.find('.') + 1);
     }},
    {"F16",
     [](HuggingFaceFiles& files) {
       for (at::Tensor& tensor : files.tensors)
         tensor = tensor.to(at::kHalf);
     }},
    {"BF16", [](HuggingFaceFiles& files) {
       for (at::Tensor& tensor : files.tensors)
         tensor = tensor.to(at::kBFloat16);
     }}};

MULTI_RANK_TEST(HuggingFaceOnRanks, any_number_of_ranks_can_load_a_hugging_face_folder) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    for (const std::string& model_name : kTinyModels) {
      const auto model = tiny(model_name);
      for (const auto& [form, change] : kForms) {
        const std::string name = model_name + ' ' + form, path = folder.path() + '/' + name;
        HuggingFaceFiles files = files_of(*model);
        change(files);
        if (rank.rank() == 0) files.write(path);
        rank.communicator()->barrier("written").wait();
        const ModelState state = zeros_of(cut(*model, rank.rank(), rank.world_size()));
        load_hugging_face(path, state, *rank.communicator());
        ModelState expected = cut(*model, rank.rank(), rank.world_size());
        const auto dtype = files.tensors[0].scalar_type();
        for (StateRange& range : expected.ranges)
          range.value = range.value.to(dtype).to(at::kFloat);
        EXPECT_TRUE(equal(state, expected)) << name;
      }
    }
  });
}

MULTI_RANK_TEST(HuggingFaceOnRanks,
                every_rank_refuses_a_hugging_face_folder_that_does_not_fit_before_a_value_changes) {
  const TemporaryFolder folder;
  run_ranks(world_size(), [&](TestRank& rank) {
    const auto model = tiny_gpt2();
    HuggingFaceFiles files = files_of(*model);
    at::Tensor head = files.at("transformer.wte.weight").clone();
    head[60][34] += 1;
    files.add("lm_head.weight", head);
    if (rank.rank() == 0) files.write(folder.path());
    rank.communicator()->barrier("written").wait();
    const ModelState state = zeros_of(cut(*model, rank.rank(), rank.world_size()));
    ModelState other = state;
    other.parameters.back().sizes = {36};
    const auto refusal = [&](const ModelState& of) {
      return error_of<std::runtime_error>(
          [&] { load_hugging_face(folder.path(), of, *rank.communicator()); });
    };
    EXPECT_EQ(refusal(state), folder.path() +
                                  "/model.safetensors: tensor lm_head.weight: differs from "
                                  "transformer.wte.weight, and they are one parameter here");
    EXPECT_EQ(refusal(other), folder.path() + "/config.json: describes another model");
    for (const StateRange& range : state.ranges)
      EXPECT_TRUE(range.value.eq(0).all().item<bool>());
  });
}

}  // namespace
}  // namespace fsdp
