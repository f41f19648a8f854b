#pragma once

#include <sharded_optimizer.h>
#include <testing/multi_rank.h>

#include <memory>
#include <string>
#include <vector>

// What the tests of the optimizer train: two units of two parameters each.
namespace fsdp {

inline const std::vector<std::vector<int64_t>> kShapes{
    test_choice<std::vector<int64_t>>("shape of a.weight", {{5, 7}, {6, 7}, {5, 9}, {4, 11}}),
    test_choice<std::vector<int64_t>>("shape of a.bias", {{3}, {5}, {7}, {11}}),
    test_choice<std::vector<int64_t>>("shape of b.weight", {{2, 3, 4}, {3, 3, 3}, {29}, {2, 11}}),
    test_choice<std::vector<int64_t>>("shape of b.bias", {{40}, {33}, {43}, {47}})};

inline std::vector<NamedParameter> make_parameters() {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(7));
  std::vector<NamedParameter> parameters;
  const std::vector<std::string> names{"a.weight", "a.bias", "b.weight", "b.bias"};
  for (size_t i = 0; i < kShapes.size(); ++i) {
    parameters.push_back({names[i], at::randn(kShapes[i], generator)});
    parameters.back().tensor.set_requires_grad(true);
  }
  return parameters;
}

// Two units of two parameters each.
inline std::vector<std::shared_ptr<FlatParameter>> make_units(
    TestRank& rank, const std::vector<NamedParameter>& p) {
  auto comm = rank.communicator();
  return {std::make_shared<FlatParameter>("a", std::vector<NamedParameter>{p[0], p[1]}, comm),
          std::make_shared<FlatParameter>("b", std::vector<NamedParameter>{p[2], p[3]}, comm)};
}

// The mean gradient of step `step`, the same for every rank.
inline at::Tensor gradient(size_t parameter, int step) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(1000 * parameter + step));
  return at::randn(kShapes[parameter], generator);
}

// As backward does it, which leaves frozen units alone.
inline void reduce_gradients(const std::vector<std::shared_ptr<FlatParameter>>& units, int step) {
  for (size_t u = 0; u < 2; ++u) {
    if (!units[u]->trainable()) continue;
    for (size_t i = 0; i < 2; ++i) {
      auto parameter = units[u]->parameters()[i].tensor;
      if (!parameter.requires_grad()) continue;
      parameter.mutable_grad() = gradient(2 * u + i, step);
      units[u]->collect_gradient(i);
    }
    units[u]->reduce_gradient();
    units[u]->wait_for_reduction();
  }
}

inline std::string norm_of_step(int step) {
  return "norm over all ranks in step " + std::to_string(step);
}

inline OptimizerOptions adamw(double weight_decay = 0.01) {
  OptimizerOptions options;
  options.lr = 0.1;
  options.weight_decay = weight_decay;
  return options;
}

}  // namespace fsdp
