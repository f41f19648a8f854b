#include <gtest/gtest.h>
#include <optim/shard_layout.h>

#include <functional>
#include <stdexcept>

#include "expect_text.h"
#include "in_a_process.h"

namespace fsdp {
namespace {

struct Inner : torch::nn::Module {
  explicit Inner(const torch::Tensor& tied) {
    own = register_parameter("own", torch::zeros({5}));
    register_parameter("tied", tied);
  }
  torch::Tensor own;
};

struct Outer : torch::nn::Module {
  Outer() {
    first = register_parameter("first", torch::zeros({3, 7}));
    last = register_parameter("last", torch::zeros({2}));
    auto inner = register_module("inner", std::make_shared<Inner>(first));
    register_module("again", inner);
  }
  torch::Tensor first, last;
};

TEST_IN_A_PROCESS(DistinctParameters,
                  distinct_parameters_lists_a_parameter_once_under_its_first_name) {
  const Outer module;
  std::vector<std::string> names;
  for (const auto& parameter : distinct_parameters(module))
    names.push_back(parameter.name);
  EXPECT_EQ(names, (std::vector<std::string>{"first", "last", "inner.own"}));
  EXPECT_EQ(distinct_parameters(module)[0].tensor.unsafeGetTensorImpl(),
            module.first.unsafeGetTensorImpl());
}

TEST_IN_A_PROCESS(DistinctParameters,
                  distinct_parameters_lists_each_of_two_variables_that_share_memory) {
  torch::nn::Module module;
  const auto weight = module.register_parameter("a", torch::zeros({4}));
  module.register_parameter("b", weight.detach());
  EXPECT_EQ(distinct_parameters(module).size(), 2u);
}

// Returns a layout of Outer's parameters on two ranks: the root holds `first` and `last`, and a
// unit holds `inner.own`.
ShardLayout layout() {
  ShardLayout layout;
  layout.world_size = 2;
  layout.units = {{"root", 64, true, true}, {"inner", 32, false, true}};
  layout.parameters = {
      {"first", 0, 0, 21, true}, {"last", 0, 32, 2, true}, {"inner.own", 1, 0, 5, true}};
  return layout;
}

TEST(ShardLayout, a_layouts_numel_sums_its_parameters_and_padded_numel_sums_its_padded_units) {
  EXPECT_EQ(layout().padded_numel(), 96);
  EXPECT_EQ(layout().numel(), 28);
}

TEST_IN_A_PROCESS(ShardLayout, check_finds_and_names_each_fault_of_a_shard_layout) {
  layout().check(distinct_parameters(Outer()));  // must not throw, because this layout is right
  using Change = std::function<void(ShardLayout&)>;
  const std::vector<std::pair<Change, std::string>> faults{
      {[](auto& l) { l.parameters.pop_back(); }, "'inner.own'"},
      {[](auto& l) { l.parameters.push_back(l.parameters[2]); }, "'inner.own'"},
      {[](auto& l) { std::swap(l.parameters[0], l.parameters[1]); }, "'first'"},
      {[](auto& l) { l.parameters[0].numel = 20; }, "'first'"},
      {[](auto& l) { l.parameters[1].offset = 24; }, "'last'"},
      {[](auto& l) { l.parameters[1].offset = 16; }, "overlaps"},
      {[](auto& l) { l.parameters[0].offset = -16; }, "'first'"},
      {[](auto& l) { l.parameters[1].offset = 64; }, "beyond"},
      {[](auto& l) { l.parameters[2].unit = 2; }, "'inner"},
      {[](auto& l) { l.units[1].padded_numel = 16; }, "'inner'"},
      {[](auto& l) { l.units[0].trainable = false; }, "'root'"},
      {[](auto& l) { l.world_size = 0; }, "world size 0"}};
  for (size_t i = 0; i < faults.size(); ++i) {
    ShardLayout faulty = layout();
    faults[i].first(faulty);
    EXPECT_CONTAINS(error_of<std::logic_error>([&] { faulty.check(distinct_parameters(Outer())); }),
                    faults[i].second)
        << "fault " << i;
  }
}

}  // namespace
}  // namespace fsdp
