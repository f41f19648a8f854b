#pragma once

#include <nn/models.h>
#include <optim/shard_layout.h>
#include <state/safetensors.h>
#include <strategies/strategy.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// The model gpt2-tiny as Hugging Face's transformers would save it, for a test to change.
namespace fsdp {

struct HuggingFaceFiles {
  nlohmann::ordered_json config{{"model_type", "gpt2"}, {"vocab_size", 61}, {"n_positions", 19},
                                {"n_embd", 35},         {"n_layer", 3},     {"n_head", 5},
                                {"n_inner", 121}};
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;

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

  // Makes the folder.
  void write(const std::string& folder) const {
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/config.json") << config.dump();
    std::vector<SafetensorsEntry> entries;
    for (size_t i = 0; i < names.size(); ++i)
      entries.push_back({names[i], tensors[i].scalar_type(), tensors[i].sizes().vec()});
    SafetensorsWriter writer(folder + "/model.safetensors", entries);
    for (const at::Tensor& tensor : tensors)
      writer.write(tensor);
    writer.close();
  }
};

// Every matrix of a block is a linear layer's, and they have it transposed.
inline HuggingFaceFiles files_of(const Module& model) {
  HuggingFaceFiles files;
  for (const auto& [name, parameter] : distinct_parameters(model)) {
    const bool transposed = parameter.dim() == 2 && name.starts_with("h.");
    const at::Tensor values = parameter.detach();
    files.add("transformer." + name, transposed ? values.t() : values);
  }
  return files;
}

// A rank's share of every parameter, and where there are `moments`, ones for each.
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

inline std::shared_ptr<Module> tiny_gpt2(uint64_t seed = 1) {
  torch::manual_seed(seed);
  const auto model = make_model("gpt2-tiny");
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : model->parameters())
    parameter.normal_();  // biases too
  return model;
}

}  // namespace fsdp
