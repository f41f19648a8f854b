#include <keep_fp32.h>

#include <unordered_map>

namespace fsdp {

void keep_in_fp32(std::vector<UnitPlan>& plan, Module& root, const ParameterFilter& keep) {
  std::vector<UnitPlan> changed;
  std::unordered_map<const c10::TensorImpl*, NamedParameter> kept;
  for (const UnitPlan& unit : plan) {
    UnitPlan rest{unit.name, unit.module, {}};
    for (const NamedParameter& parameter : unit.parameters) {
      if (keep(parameter.name)) {
        kept.emplace(parameter.tensor.unsafeGetTensorImpl(), parameter);
      } else {
        rest.parameters.push_back(parameter);
      }
    }
    if (!rest.parameters.empty()) changed.push_back(rest);
  }
  if (kept.empty()) return;
  UnitPlan apart{"root.fp32", &root, {}};
  for (const NamedParameter& parameter : distinct_parameters(root))
    if (kept.count(parameter.tensor.unsafeGetTensorImpl()) != 0)
      apart.parameters.push_back(parameter);
  auto after_root = changed.begin();
  if (after_root != changed.end() && after_root->module == &root) ++after_root;
  changed.insert(after_root, apart);
  plan = std::move(changed);
}

}  // namespace fsdp
