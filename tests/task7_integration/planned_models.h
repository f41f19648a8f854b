#pragma once

#include <testing/multi_rank.h>
#include <testing/toy_model.h>
#include <unit_plan.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// This file has the modules that the tests of task 7 shard, or for which they plan the units.
namespace fsdp {

// Arguments for the constructors of Nested (kShared) and of PairBlock (kTied).
inline constexpr bool kShared = true, kTied = true;

// A block that contains a block, `inner`, and has a parameter of its own, `scale`.
class OuterBlock : public Module {
 public:
  OuterBlock() {
    inner = register_module("inner", std::make_shared<ToyBlock>(4, 1));
    scale = register_parameter("scale", at::ones({1}));
  }
  torch::Tensor forward(torch::Tensor x) override { return (*inner)(x)*scale; }
  std::shared_ptr<ToyBlock> inner;
  at::Tensor scale;
};

// A root without own parameters that calls two OuterBlocks. If `share` is true, the two OuterBlocks
// have the same inner block.
class Nested : public Module {
 public:
  explicit Nested(bool share = false) {
    a = register_module("a", std::make_shared<OuterBlock>());
    b = register_module("b", std::make_shared<OuterBlock>());
    if (share) b->inner = b->replace_module("inner", a->inner);
  }
  torch::Tensor forward(torch::Tensor x) override { return (*b)((*a)(x)); }
  std::shared_ptr<OuterBlock> a, b;
};

// A block that calls the blocks inside it, `one` and `two`, one after the other. If `tie` is true,
// their weights are tied.
class PairBlock : public Module {
 public:
  explicit PairBlock(bool tie = false) {
    one = register_module("one", std::make_shared<ToyBlock>(4, 1));
    two = register_module("two", std::make_shared<ToyBlock>(4, 2));
    if (tie) two->tie_weight(one->weight);
  }
  torch::Tensor forward(torch::Tensor x) override { return (*two)((*one)(x)); }
  std::shared_ptr<ToyBlock> one, two;
};

// Calls modules of any kind one after the other. Their names are a, b, c, .... The root has no
// parameter.
class Row : public Module {
 public:
  explicit Row(const std::vector<std::shared_ptr<Module>>& modules) {
    for (const auto& module : modules)
      row.push_back(register_module(std::string(1, static_cast<char>('a' + row.size())), module));
  }
  torch::Tensor forward(torch::Tensor x) override {
    for (const auto& module : row)
      x = (*module)(x);
    return x;
  }
  std::vector<std::shared_ptr<Module>> row;
};

// A module that multiplies its input by the sum of three numbers. No policy for blocks chooses it.
class Scale : public Module {
 public:
  Scale() : factors(register_parameter("factors", at::ones({3}))) {}
  torch::Tensor forward(torch::Tensor x) override { return x * factors.sum(); }
  at::Tensor factors;
};

// A block that contains any module, `inside`, and has a parameter of its own, `own`.
class HolderBlock : public Module {
 public:
  explicit HolderBlock(const std::shared_ptr<Module>& module)
      : inside(register_module("inside", module)), own(register_parameter("own", at::ones({2}))) {}
  torch::Tensor forward(torch::Tensor x) override { return (*inside)(x)*own.sum(); }
  std::shared_ptr<Module> inside;
  at::Tensor own;
};

// A module whose parameters lie in a torch::nn::Module, which cannot have hooks.
class Projection : public Module {
 public:
  Projection() : linear_(register_module("linear", std::make_shared<Parameters>())) {}
  torch::Tensor forward(torch::Tensor x) override { return at::linear(x, linear_->weight); }

 private:
  struct Parameters : torch::nn::Module {
    Parameters()
        : weight(register_parameter("weight", at::ones({4, 4}))),
          bias(register_parameter("bias", at::ones({4}))) {}
    at::Tensor weight, bias;
  };
  std::shared_ptr<Parameters> linear_;
};

// Returns `plan` as a text with the parameters of each unit, for example
// "root: embedding head; blocks0: weight bias spare; ".
inline std::string text(const std::vector<UnitPlan>& plan) {
  std::string result;
  for (const UnitPlan& unit : plan) {
    result += unit.name + ":";
    for (const auto& parameter : unit.parameters)
      result += " " + parameter.name;
    result += "; ";
  }
  return result;
}

// Returns `plan` with units and parameters sorted by name, so that a test can compare two plans
// that differ only in their order.
inline std::vector<UnitPlan> sorted(std::vector<UnitPlan> plan) {
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(plan.begin(), plan.end(), by_name);
  for (UnitPlan& unit : plan)
    std::sort(unit.parameters.begin(), unit.parameters.end(), by_name);
  return plan;
}

// Runs the function `plan` on one rank. Returns the plan that it returns, as text() writes it.
inline std::string plan_text(const std::function<std::vector<UnitPlan>()>& plan) {
  return run_ranks(1, [&](TestRank& rank) { rank.observe("plan", text(plan())); })
      .at(0, "plan")
      .get<std::string>();
}

// Returns the line "on 2 ranks", then a line such as "blocks0, 128 elements, trainable" for each
// unit, and then a line for each parameter.
inline std::vector<std::string> lines(const ShardLayout& layout) {
  std::vector<std::string> result{"on " + std::to_string(layout.world_size) + " ranks"};
  for (const auto& [name, padded_numel, root, trainable] : layout.units) {
    result.push_back(name + ", " + std::to_string(padded_numel) + " elements" +
                     (root ? ", root" : "") + (trainable ? ", trainable" : ""));
  }
  for (const auto& [name, unit, offset, numel, trainable, sizes] : layout.parameters) {
    result.push_back(name + ": " + std::to_string(numel) + " elements at " +
                     std::to_string(offset) + " of " + layout.units.at(unit).name +
                     (trainable ? ", trainable" : ""));
  }
  return result;
}

}  // namespace fsdp
