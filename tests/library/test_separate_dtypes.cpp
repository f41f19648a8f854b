#include <nn/module.h>
#include <separate_dtypes.h>
#include <separate_frozen.h>
#include <testing/multi_rank.h>

#include <string>
#include <vector>

namespace fsdp {
namespace {

struct BareModule : Module {
  at::Tensor forward(at::Tensor x) override { return x; }
};

NamedParameter parameter_of(const std::string& name, at::ScalarType dtype, bool trainable = true) {
  return {name, at::zeros({2}, dtype).set_requires_grad(trainable)};
}

// Returns "NAME: parameter parameter; " for each unit.
std::string units_of_plan(const std::vector<UnitPlan>& plan) {
  std::string text;
  for (const UnitPlan& unit : plan) {
    text += unit.name + ":";
    for (const auto& [name, tensor] : unit.parameters)
      text += " " + name;
    text += "; ";
  }
  return text;
}

TEST(SeparateDtypes, only_a_unit_of_several_dtypes_is_divided_and_the_order_of_units_stays) {
  run_ranks(1, [](TestRank&) {
    BareModule root, block;
    std::vector<UnitPlan> plan{
        {"root", &root, {parameter_of("a", at::kBFloat16), parameter_of("b", at::kBFloat16)}},
        {"block",
         &block,
         {parameter_of("c", at::kBFloat16), parameter_of("d", at::kFloat),
          parameter_of("e", at::kHalf), parameter_of("f", at::kBFloat16, false),
          parameter_of("g", at::kFloat)}},
        {"last", &block, {parameter_of("h", at::kFloat)}}};
    separate_dtypes(plan);
    EXPECT_EQ(units_of_plan(plan),
              "root: a b; block:bf16: c f; block:fp32: d g; block:fp16: e; last: h; ");
    EXPECT_EQ(plan[1].module, &block);
    separate_frozen(plan);
    EXPECT_EQ(units_of_plan(plan),
              "root: a b; block:bf16:frozen: f; block:bf16: c; block:fp32: d g; block:fp16: e; "
              "last: h; ");
    for (const UnitPlan& unit : plan) {
      const std::string module = ShardLayout::Unit{unit.name, 16, false, false}.module();
      EXPECT_EQ(module, unit.name.substr(0, unit.name.find(':')));
    }
  });
}

}  // namespace
}  // namespace fsdp
