#include <keep_fp32.h>

#include <algorithm>
#include <set>
#include <utility>

namespace fsdp {

void keep_in_fp32(std::vector<UnitPlan>& plan, Module& root, const ParameterFilter& keep) {
  std::set<std::string> kept;
  for (UnitPlan& unit : plan) {
    std::erase_if(unit.parameters, [&](const NamedParameter& parameter) {
      return keep(parameter.name) && kept.insert(parameter.name).second;
    });
  }
  if (kept.empty()) return;
  UnitPlan fp32{"root.fp32", &root, distinct_parameters(root)};
  std::erase_if(fp32.parameters,
                [&](const NamedParameter& parameter) { return !kept.contains(parameter.name); });

  std::erase_if(plan, [](const UnitPlan& unit) { return unit.parameters.empty(); });
  const bool has_root = !plan.empty() && plan.front().module == &root;
  plan.insert(plan.begin() + (has_root ? 1 : 0), std::move(fp32));
}

}  // namespace fsdp
