#pragma once

#include <memory/live_bytes.h>
#include <sharded_optimizer.h>
#include <testing/multi_rank.h>

#include <memory>
#include <string>
#include <vector>

// This file has the four units that the tests of the optimizer use. The tests train a, b and c; d
// is frozen.
namespace fsdp {

using Sizes = std::vector<int64_t>;

struct Trained {
  std::string name;  // "a.weight" is the parameter `weight` of the unit `a`
  Sizes sizes;
  bool trainable{true};
};

// In unit c, a frozen parameter and a bias lie between parameters that may be in one group. One
// parameter is stored transposed, one is empty, and one has a single element.
inline const std::vector<Trained> kParameters{
    {"a.weight", test_choice<Sizes>("shape of a.weight", {{5, 7}, {6, 7}, {5, 9}, {4, 11}})},
    {"a.bias", test_choice<Sizes>("shape of a.bias", {{3}, {5}, {7}, {11}})},
    {"b.weight", test_choice<Sizes>("shape of b.weight", {{2, 3, 4}, {3, 3, 3}, {29}, {2, 11}})},
    {"b.bias", test_choice<Sizes>("shape of b.bias", {{40}, {33}, {43}, {47}})},
    {"c.weight", test_choice<Sizes>("shape of c.weight", {{7, 9}, {5, 11}, {3, 19}, {59}})},
    {"c.fixed", test_choice<Sizes>("shape of c.fixed", {{5}, {13}, {9}}), false},
    {"c.scale", test_choice<Sizes>("shape of c.scale", {{3, 5}, {2, 7}, {4, 3}})},
    {"c.bias", test_choice<Sizes>("shape of c.bias", {{9}, {7}, {13}})},
    {"c.gate", test_choice<Sizes>("shape of c.gate", {{17}, {19}, {5, 5}})},
    {"c.none", {0}},
    {"c.one", {1}},
    {"d.fixed", test_choice<Sizes>("shape of d.fixed", {{6, 5}, {31}, {27}}), false}};

inline const std::vector<std::string> kUnits{"a", "b", "c", "d"};

inline int64_t numel(const Trained& parameter) {
  int64_t product = 1;
  for (const int64_t size : parameter.sizes)
    product *= size;
  return product;
}

inline bool belongs(const Trained& parameter, const std::string& unit) {
  return parameter.name.substr(0, parameter.name.find('.')) == unit;
}

inline std::vector<NamedParameter> make_parameters() {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(7));
  std::vector<NamedParameter> parameters;
  for (const auto& [name, sizes, trainable] : kParameters) {
    at::Tensor values = at::randn(sizes, generator);
    if (name == "c.scale") values = values.t().contiguous().t();
    parameters.push_back({name, values.set_requires_grad(trainable)});
  }
  return parameters;
}

using Units = std::vector<std::shared_ptr<FlatParameter>>;

inline Units make_units(TestRank& rank, const std::vector<NamedParameter>& parameters) {
  Units units;
  for (const std::string& unit : kUnits) {
    std::vector<NamedParameter> members;
    for (size_t i = 0; i < kParameters.size(); ++i)
      if (belongs(kParameters[i], unit)) members.push_back(parameters[i]);
    units.push_back(make_flat_parameter(unit, std::move(members), rank.communicator()));
  }
  return units;
}

// Returns whether the parameter gets a gradient in this step. Frozen parameters get none. Every
// fifth parameter gets none either, and the next step leaves out other parameters.
inline bool gets_gradient(size_t parameter, int step) {
  return kParameters[parameter].trainable && (parameter + static_cast<size_t>(step)) % 5 != 4;
}

// Returns the gradient of step `step`, the same on every rank; zeros if the parameter gets none.
inline at::Tensor gradient(size_t parameter, int step) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(1000 * parameter + step + 1));
  const at::Tensor values = at::randn(kParameters[parameter].sizes, generator);
  return gets_gradient(parameter, step) ? values : at::zeros_like(values);
}

// Collects and reduces gradients as backward does. Units without a trainable parameter are not
// reduced.
template <class Gradient>
void reduce_gradients(const Units& units, const Gradient& gradient_of) {
  size_t parameter = 0;  // index into kParameters of the next parameter of the units
  for (const auto& unit : units) {
    for (size_t i = 0; i < unit->parameters().size(); ++i, ++parameter) {
      at::Tensor tensor = unit->parameters()[i].tensor;
      const at::Tensor values = tensor.requires_grad() ? gradient_of(parameter) : at::Tensor();
      if (!values.defined()) continue;
      tensor.mutable_grad() = values;
      unit->mark_gradient_ready(i);
    }
    if (!unit->trainable()) continue;
    unit->reduce_gradient();
    unit->wait_for_reduction();
  }
}

inline void reduce_gradients(const Units& units, int step) {
  reduce_gradients(units, [step](size_t i) {
    return gets_gradient(i, step) ? gradient(i, step) : at::Tensor();
  });
}

// Gives every trainable parameter a gradient whose elements are 1, and reduces the gradients.
inline void reduce_all_gradients(const Units& units) {
  reduce_gradients(units, [](size_t i) { return at::ones(kParameters[i].sizes); });
}

inline const std::string kOldValues = "parameters that have the values from before the step";

// Observes the names of the trainable parameters whose values are still those that
// make_parameters() returns.
inline void observe_old_values(TestRank& rank, const Units& units) {
  const auto before = make_parameters();
  size_t parameter = 0;
  std::string names;
  for (const auto& unit : units) {
    unit->unshard();
    for (const auto& [name, tensor] : unit->parameters()) {
      const auto& was = before[parameter++].tensor;
      if (was.requires_grad() && was.numel() > 0 && was.equal(tensor)) names += name + " ";
    }
    unit->reshard();
  }
  rank.observe(kOldValues, names);
}

inline void expect_no_old_values(const RankRun& run, const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
  expect_on_all_ranks(run, kOldValues, "", file, line);
}

inline int64_t live(MemoryClass cls) {
  return live_bytes::now()[cls];
}

inline OptimizerOptions adamw(double weight_decay = 0.01) {
  OptimizerOptions options;
  options.lr = 0.1;
  options.weight_decay = weight_decay;
  return options;
}

inline OptimizerOptions sgd(double weight_decay = 0.01) {
  OptimizerOptions options = adamw(weight_decay);
  options.kind = OptimizerOptions::Kind::sgd;
  return options;
}

// Returns parameter groups with different options. No parameter belongs to the first group.
inline std::vector<ParameterGroup> groups_that_differ() {
  using Kind = OptimizerOptions::Kind;
  return {{"nobody", sgd()},
          {"bias", {Kind::adamw, 0.1, 0.9, 0.999, 1e-8, 0}},
          {"^b|one", {Kind::adamw, 0.03, 0.8, 0.99, 1e-3, 0.1}},
          {"gate", {Kind::sgd, 0.05, 0.9, 0.999, 1e-8, 0.2}},
          {"", {Kind::adamw, 0.2, 0.5, 0.9, 1e-2, 0.3}}};
}

struct TrainedUnits {
  explicit TrainedUnits(TestRank& rank,
                        const std::vector<ParameterGroup>& groups = groups_that_differ())
      : units(make_units(rank, make_parameters())),
        optimizer(make_sharded_optimizer(units, groups, rank.communicator())) {}

  Units units;
  std::shared_ptr<ShardedOptimizer> optimizer;
};

}  // namespace fsdp
