#include <nn/lora.h>
#include <nn/models.h>
#include <optim/shard_layout.h>
#include <strategies/build_model.h>
#include <strategies/vocabulary.h>
#include <trace/module_spans.h>

#include <regex>
#include <stdexcept>
#include <string>

namespace fsdp {
namespace {

// Freezes the parameters whose names match the pattern; none, if the pattern is empty. Throws
// std::invalid_argument if a pattern matches none of the parameters, or all of them.
void freeze(const torch::nn::Module& model, const std::string& pattern) {
  if (pattern.empty()) return;
  const std::regex frozen(pattern);
  const auto parameters = distinct_parameters(model);
  size_t count = 0;
  for (const auto& [name, parameter] : parameters) {
    if (!std::regex_search(name, frozen)) continue;
    at::Tensor(parameter).set_requires_grad(false);
    ++count;
  }
  if (count == 0)
    throw std::invalid_argument("--freeze " + pattern + ": matches no parameter; their names are " +
                                parameters.front().name + ", ..., " + parameters.back().name);
  if (count == parameters.size())
    throw std::invalid_argument("--freeze " + pattern +
                                ": matches all parameters, so none is left "
                                "to train");
}

void add_adapters(torch::nn::Module& model, const ModelConfig& config) {
  if (config.lora == 0) return;
  try {
    add_lora(model, config.lora_target, {config.lora, config.lora_alpha});
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("--lora-target " + config.lora_target + ": " + error.what());
  }
}

}  // namespace

std::shared_ptr<Module> build_model(const TrainConfig& config) {
  torch::manual_seed(config.training.seed);
  auto model = make_model(config.model.name, vocabulary_of(config));
  add_adapters(*model, config.model);
  freeze(*model, config.model.freeze);
  record_module_spans(*model);
  return model;
}

}  // namespace fsdp
