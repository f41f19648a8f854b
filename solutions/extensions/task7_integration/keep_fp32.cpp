#include <keep_fp32.h>

#include <set>

namespace fsdp {

void keep_in_fp32(std::vector<UnitPlan>& plan, Module& root, const ParameterFilter& keep) {
  std::set<std::string> kept;
  for (UnitPlan& unit : plan) {
    std::erase_if(unit.parameters, [&](const NamedParameter& parameter) {
      return keep(parameter.name) && kept.insert(parameter.name).second;
    });
  }
  if (kept.empty()) return;
  std::erase_if(plan, [](const UnitPlan& unit) { return unit.parameters.empty(); });
  UnitPlan apart{"root.fp32", &root, distinct_parameters(root)};
  std::erase_if(apart.parameters, [&](const NamedParameter& p) { return !kept.contains(p.name); });
  const bool root_is_left = !plan.empty() && plan.front().module == &root;
  plan.insert(plan.begin() + (root_is_left ? 1 : 0), std::move(apart));
}

}  // namespace fsdp
