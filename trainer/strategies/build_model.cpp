#include <nn/lora.h>
#include <nn/models.h>
#include <optim/shard_layout.h>
#include <strategies/build_model.h>
#include <strategies/vocabulary.h>
#include <trace/module_spans.h>

#include <algorithm>
#include <regex>
#include <stdexcept>
#include <string>

namespace fsdp {
namespace {

int64_t matches(const std::string& pattern, const std::vector<std::string>& names) {
  const std::regex wanted(pattern);
  return std::ranges::count_if(
      names, [&](const std::string& name) { return std::regex_search(name, wanted); });
}

// Returns the first six of `names` and the last one as text: "wte.weight, wpe.weight, ...,
// ln_f.bias". Returns all names if there are at most seven.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kFirst = 6;
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i >= kFirst && i + 1 < names.size()) continue;
    text += (i == 0 ? "" : i > kFirst ? ", ..., " : ", ") + names[i];
  }
  return text;
}

// Freezes the parameters whose names match `pattern`. Freezes none if `pattern` is empty. Throws
// what check_freeze() throws.
void freeze(const torch::nn::Module& model, const std::string& pattern) {
  if (pattern.empty()) return;
  const auto parameters = distinct_parameters(model);
  std::vector<std::string> names;
  for (const auto& parameter : parameters)
    names.push_back(parameter.name);
  check_freeze(pattern, names);
  const std::regex frozen(pattern);
  for (const auto& [name, parameter] : parameters)
    if (std::regex_search(name, frozen)) at::Tensor(parameter).set_requires_grad(false);
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

void check_freeze(const std::string& pattern, const std::vector<std::string>& parameters) {
  const int64_t frozen = matches(pattern, parameters);
  if (frozen == 0)
    throw std::invalid_argument("--freeze " + pattern + ": matches no parameter; their names are " +
                                some_of(parameters));
  if (frozen == std::ssize(parameters))
    throw std::invalid_argument("--freeze " + pattern +
                                ": matches all parameters, so none is left to train");
}

void check_lora_target(const std::string& pattern, const std::vector<std::string>& layers,
                       bool tied_head) {
  if (tied_head && matches(pattern, {"lm_head"}) > 0)
    throw std::invalid_argument(
        "--lora-target " + pattern +
        ": matches lm_head, whose weight is also that of the embedding, so that export could not "
        "merge its adapter; give a pattern that does not match lm_head");
  if (matches(pattern, layers) == 0)
    throw std::invalid_argument("--lora-target " + pattern +
                                ": matches no layer that can have an adapter; their names are " +
                                some_of(layers));
}

std::shared_ptr<Module> build_model(const TrainConfig& config) {
  torch::manual_seed(config.training.seed);
  auto model = make_model(config.model.name, vocabulary_of(config));
  add_adapters(*model, config.model);
  freeze(*model, config.model.freeze);
  record_module_spans(*model);
  return model;
}

}  // namespace fsdp
