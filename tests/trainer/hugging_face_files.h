#pragma once

#include <nn/models.h>
#include <optim/shard_layout.h>
#include <state/safetensors.h>
#include <strategies/state_without_ranges.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// Files of tiny models in the format of Hugging Face's transformers, in memory. A test can change
// them before HuggingFaceFiles::write() writes them.
namespace fsdp {

struct HuggingFaceFiles {
  nlohmann::ordered_json config{{"model_type", "gpt2"}, {"vocab_size", 61}, {"n_positions", 19},
                                {"n_embd", 35},         {"n_layer", 3},     {"n_head", 5},
                                {"n_inner", 121}};
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  // Number of weight files. If it is above 1, write() adds an index file, and tensor i is in the
  // weight file with the number i % files.
  size_t files{1};

  void add(const std::string& name, const at::Tensor& tensor) {
    names.push_back(name);
    tensors.push_back(tensor.contiguous());
  }
  size_t place_of(const std::string& name) const {
    return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  }
  at::Tensor& at(const std::string& name) { return tensors.at(place_of(name)); }
  void remove(const std::string& name) {
    const auto place = static_cast<std::ptrdiff_t>(place_of(name));
    names.erase(names.begin() + place);
    tensors.erase(tensors.begin() + place);
  }

  std::string file(size_t tensor) const {
    const std::string number = std::to_string(tensor % files + 1);
    return files == 1 ? "model.safetensors" : "model-" + number + ".safetensors";
  }
  // Writes config.json and the weight files into `folder`, and creates the folder if it is missing.
  void write(const std::string& folder) const {
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/config.json") << config.dump();
    nlohmann::json places;
    for (size_t first = 0; first < files; ++first) {
      std::vector<SafetensorsEntry> entries;
      for (size_t i = first; i < names.size(); i += files) {
        entries.push_back({names[i], tensors[i].scalar_type(), tensors[i].sizes().vec()});
        places[names[i]] = file(i);
      }
      SafetensorsWriter writer(folder + '/' + file(first), entries);
      for (size_t i = first; i < names.size(); i += files)
        writer.write(tensors[i]);
      writer.close();
    }
    if (files > 1)
      std::ofstream(folder + "/model.safetensors.index.json")
          << nlohmann::json{{"metadata", {}}, {"weight_map", places}};
  }
};

// Texts that describe small models: make_model() makes a model from such a text. In kTinyLlama, a
// head has 6 rows of q_proj (d_model / heads).
inline const std::string kTinyLlama =
    "llama:vocabulary=61,context=19,d_model=36,layers=2,heads=6,d_ff=33,kv_heads=2";
inline const std::string kTinyQwen2 = kTinyLlama + ",qkv_bias=true,tied_head=true";
inline const std::string kTinyQwen3 = kTinyLlama + ",head_dim=4,qk_norm=true";
inline const std::string kUntiedGPT2 =
    "gpt2:vocabulary=61,context=19,d_model=35,layers=3,heads=5,d_ff=121,tied_head=false";

inline HuggingFaceFiles files_of_llama(const Module& model) {
  const auto parameters = model.named_parameters();
  const bool qwen2 = parameters.contains("layers.0.attn.q_proj.bias");
  const bool qwen3 = parameters.contains("layers.0.attn.q_norm.weight");
  // The number of rows of q_proj that belong to one head.
  const int64_t width = parameters["layers.0.attn.q_proj.weight"].size(0) / 6;
  HuggingFaceFiles files;
  files.config = {{"model_type", qwen2   ? "qwen2"
                                 : qwen3 ? "qwen3"
                                         : "llama"},
                  {"head_dim", width},
                  {"vocab_size", 61},
                  {"max_position_embeddings", 19},
                  {"hidden_size", 36},
                  {"num_hidden_layers", 2},
                  {"num_attention_heads", 6},
                  {"num_key_value_heads", 2},
                  {"intermediate_size", 33},
                  {"rms_norm_eps", 1e-5},
                  {"tie_word_embeddings", qwen2}};
  const std::vector<std::pair<std::string, std::string>> theirs{
      {"token_embeddings", "model.embed_tokens"},
      {"layers.", "model.layers."},
      {"attn.output_proj", "attn.o_proj"},
      {"attn.", "self_attn."},
      {"ffn.w1", "mlp.gate_proj"},
      {"ffn.w2", "mlp.down_proj"},
      {"ffn.w3", "mlp.up_proj"},
      {"ln1", "input_layernorm"},
      {"ln2", "post_attention_layernorm"},
      {"ln_final", "model.norm"}};
  for (auto [name, parameter] : distinct_parameters(model)) {
    std::vector<int64_t> rows;
    const bool rotated = name.find(".q_") != name.npos || name.find(".k_") != name.npos;
    for (int64_t head = 0; rotated && head < parameter.size(0); head += width)
      for (int64_t i = 0; i < width; ++i)
        rows.push_back(head + (2 * i < width ? 2 * i : 2 * i - width + 1));
    for (const auto& [own, their] : theirs)
      if (const size_t place = name.find(own); place != name.npos)
        name.replace(place, own.size(), their);
    const at::Tensor values = parameter.detach();
    files.add(name, rotated ? values.index_select(0, at::tensor(rows)) : values);
  }
  return files;
}

// Returns the model's parameters as the files in which transformers would save them. transformers
// stores the matrices of a GPT-2 block transposed, and the rows of a Llama's q_proj and k_proj in
// another order.
inline HuggingFaceFiles files_of(const Module& model) {
  HuggingFaceFiles files;
  if (model.named_parameters().contains("ln_final.weight")) return files_of_llama(model);
  for (const auto& [name, parameter] : distinct_parameters(model)) {
    const bool transposed = parameter.dim() == 2 && name.starts_with("h.");
    const at::Tensor values = parameter.detach();
    const bool head = name == "lm_head.weight";
    if (head) files.config["tie_word_embeddings"] = false;
    files.add(head ? name : "transformer." + name, transposed ? values.t() : values);
  }
  return files;
}

// Returns the part of every parameter that a rank owns, with moments of ones if `moments` is true.
inline ModelState cut(const Module& model, int rank, int world_size, bool moments = false) {
  const auto parameters = distinct_parameters(model);
  ModelState state = state_without_ranges(parameters);
  for (const auto& [name, tensor] : parameters) {
    const int64_t begin = tensor.numel() * rank / world_size;
    const int64_t end = tensor.numel() * (rank + 1) / world_size;
    if (begin == end) continue;
    const at::Tensor values = tensor.detach().reshape({-1}).slice(0, begin, end).clone();
    StateRange range{name, begin, end, values, {}, {}, {}};
    if (moments) {
      range.exp_avg = range.exp_avg_sq = at::ones_like(values);
      range.step = at::ones({});
    }
    state.ranges.push_back(range);
  }
  return state;
}

inline std::shared_ptr<Module> tiny(const std::string& name, uint64_t seed = 1) {
  // PyTorch uses only the calling thread, so that the process can still fork.
  at::set_num_threads(1);
  torch::manual_seed(seed);
  const auto model = make_model(name);
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : model->parameters())
    parameter.normal_();  // make_model() fills biases with zeros; here they get random values too
  return model;
}

inline std::shared_ptr<Module> tiny_gpt2() {
  return tiny("gpt2-tiny");
}

}  // namespace fsdp
