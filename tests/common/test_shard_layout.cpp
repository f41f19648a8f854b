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

TEST(DistinctParameters, are_listed_once_under_their_first_name) {
  in_a_process([] {
    const Outer module;
    std::vector<std::string> names;
    for (const auto& parameter : distinct_parameters(module))
      names.push_back(parameter.name);
    EXPECT_EQ(names, (std::vector<std::string>{"first", "last", "inner.own"}));
    EXPECT_EQ(distinct_parameters(module)[0].tensor.unsafeGetTensorImpl(),
              module.first.unsafeGetTensorImpl());
  });
}

TEST(DistinctParameters, variables_that_share_memory_are_distinct) {
  in_a_process([] {
    torch::nn::Module module;
    const auto weight = module.register_parameter("a", torch::zeros({4}));
    module.register_parameter("b", weight.detach());
    EXPECT_EQ(distinct_parameters(module).size(), 2u);
  });
}

// Of Outer's parameters on two ranks: the root holds first and last, a unit holds inner.own.
ShardLayout layout() {
  ShardLayout layout;
  layout.world_size = 2;
  layout.units = {{"root", 64, true, true}, {"inner", 32, false, true}};
  layout.parameters = {
      {"first", 0, 0, 21, true}, {"last", 0, 32, 2, true}, {"inner.own", 1, 0, 5, true}};
  return layout;
}

TEST(ShardLayout, adds_up_its_elements) {
  EXPECT_EQ(layout().padded_numel(), 96);
  EXPECT_EQ(layout().numel(), 28);
}

struct LayoutFault {
  const char* name;
  std::function<void(ShardLayout&)> make;
  const char* named;  // what the message must say
};

class ShardLayoutFaults : public testing::TestWithParam<LayoutFault> {};

TEST(ShardLayout, accepts_a_complete_layout) {
  in_a_process([] { layout().check(distinct_parameters(Outer())); });
}

TEST_P(ShardLayoutFaults, are_found_and_named) {
  in_a_process([] {
    ShardLayout faulty = layout();
    GetParam().make(faulty);
    EXPECT_CONTAINS(error_of<std::logic_error>([&] { faulty.check(distinct_parameters(Outer())); }),
                    GetParam().named);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Each, ShardLayoutFaults,
    testing::Values(
        LayoutFault{"MissingParameter", [](ShardLayout& l) { l.parameters.pop_back(); },
                    "'inner.own'"},
        LayoutFault{"ParameterTwice",
                    [](ShardLayout& l) { l.parameters.push_back(l.parameters[2]); }, "'inner.own'"},
        LayoutFault{"OtherOrder",
                    [](ShardLayout& l) { std::swap(l.parameters[0], l.parameters[1]); }, "'first'"},
        LayoutFault{"TooFewElements", [](ShardLayout& l) { l.parameters[0].numel = 20; },
                    "'first'"},
        LayoutFault{"Unaligned", [](ShardLayout& l) { l.parameters[1].offset = 24; }, "'last'"},
        LayoutFault{"Overlap", [](ShardLayout& l) { l.parameters[1].offset = 16; }, "overlaps"},
        LayoutFault{"NegativeOffset", [](ShardLayout& l) { l.parameters[0].offset = -16; },
                    "'first'"},
        LayoutFault{"BeyondTheEnd", [](ShardLayout& l) { l.parameters[1].offset = 64; }, "beyond"},
        LayoutFault{"UnknownUnit", [](ShardLayout& l) { l.parameters[2].unit = 2; }, "'inner"},
        LayoutFault{"UnpaddedUnit", [](ShardLayout& l) { l.units[1].padded_numel = 16; },
                    "'inner'"},
        LayoutFault{"FrozenUnit", [](ShardLayout& l) { l.units[0].trainable = false; }, "'root'"},
        LayoutFault{"NoRanks", [](ShardLayout& l) { l.world_size = 0; }, "world size 0"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fsdp
