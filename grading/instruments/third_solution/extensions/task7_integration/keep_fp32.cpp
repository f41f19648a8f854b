#include <keep_fp32.h>

#include <set>

namespace fsdp {

void keep_in_fp32(std::vector<UnitPlan>& plan, Module& root, const ParameterFilter& keep) {
  if (!keep) return;
  std::set<const c10::TensorImpl*> kept;
  for (UnitPlan& unit : plan) {
    std::erase_if(unit.parameters, [&](const NamedParameter& parameter) {
      return keep(parameter.name) && kept.insert(parameter.tensor.unsafeGetTensorImpl()).second;
    });
  }
  if (kept.empty()) return;
  UnitPlan fp32{"root.fp32", &root, {}};
  for (const NamedParameter& parameter : distinct_parameters(root)) {
    if (kept.contains(parameter.tensor.unsafeGetTensorImpl())) fp32.parameters.push_back(parameter);
  }
  std::erase_if(plan, [](const UnitPlan& unit) { return unit.parameters.empty(); });
  const bool after_root = !plan.empty() && plan.front().module == &root;
  plan.insert(plan.begin() + (after_root ? 1 : 0), std::move(fp32));
}

}  // namespace fsdp
