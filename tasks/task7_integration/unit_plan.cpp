#include <base/todo.h>
#include <flat_layout.h>
#include <unit_plan.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace fsdp {

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy) {
  todo("plan_units", "7.1");
}

ShardLayout plan_layout(const Module& root, const std::vector<UnitPlan>& plan, int world_size) {
  todo("plan_layout", "7.1");
}

}  // namespace fsdp
