#include <base/todo.h>
#include <flat_layout.h>
#include <unit_plan.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

namespace fsdp {

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy) {
  todo("plan_units", "7.1");
}

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy,
                                 const std::vector<torch::nn::Module*>& ignored) {
  todo("plan_units", "7.8");
}

void keep_in_fp32(std::vector<UnitPlan>& plan, Module& root, const ParameterFilter& keep) {
  todo("keep_in_fp32", "7.9");
}

ShardLayout plan_layout(const Module& root, const std::vector<UnitPlan>& plan, int world_size) {
  todo("plan_layout", "7.1");
}

}  // namespace fsdp
