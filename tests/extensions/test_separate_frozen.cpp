#include <gtest/gtest.h>
#include <nn/module.h>
#include <separate_frozen.h>

#include <common/in_a_process.h>

#include <string>
#include <vector>

namespace fsdp {
namespace {

struct Empty : Module {
  at::Tensor forward(at::Tensor x) override { return x; }
};

NamedParameter parameter(const std::string& name, bool trainable) {
  return {name, at::zeros({2}).set_requires_grad(trainable)};
}

// Returns a text such as "root: a b; block: c; ", which lists the parameters of each unit.
std::string units_in(const std::vector<UnitPlan>& plan) {
  std::string text;
  for (const UnitPlan& unit : plan) {
    text += unit.name + ":";
    for (const auto& [name, tensor] : unit.parameters)
      text += " " + name;
    text += "; ";
  }
  return text;
}

TEST_IN_A_PROCESS(
    SeparateFrozen,
    only_a_unit_with_frozen_and_trainable_parameters_is_divided_and_the_order_of_units_stays) {
  Empty root, block;
  std::vector<UnitPlan> plan{
      {"root", &root, {parameter("a", false), parameter("b", false)}},
      {"block",
       &block,
       {parameter("c", true), parameter("d", false), parameter("e", true), parameter("f", false)}},
      {"last", &block, {parameter("g", true)}}};
  separate_frozen(plan);
  EXPECT_EQ(units_in(plan), "root: a b; block:frozen: d f; block: c e; last: g; ");
  EXPECT_EQ(plan[1].module, &block);
  EXPECT_EQ(plan[2].module, &block);
}

TEST_IN_A_PROCESS(SeparateFrozen, a_unit_of_frozen_parameters_has_the_path_of_its_module) {
  EXPECT_EQ((ShardLayout::Unit{"h.0:frozen", 16, false, false}.module()), "h.0");
  EXPECT_EQ((ShardLayout::Unit{"h.0", 16, false, true}.module()), "h.0");
}

}  // namespace
}  // namespace fsdp
