#include <keep_fp32.h>

namespace fsdp {
namespace {

// Whether the two are one Variable.
auto same_as(const at::Tensor& tensor) {
  return [&tensor](const NamedParameter& other) { return other.tensor.is_same(tensor); };
}

}  // namespace

void keep_in_fp32(std::vector<UnitPlan>& plan, Module& root, const ParameterFilter& keep) {
  UnitPlan kept{"root.fp32", &root, {}};
  for (const NamedParameter& parameter : distinct_parameters(root)) {
    if (!keep(parameter.name)) continue;
    for (UnitPlan& unit : plan) {
      if (std::erase_if(unit.parameters, same_as(parameter.tensor)) > 0)
        kept.parameters.push_back(parameter);
    }
  }
  if (kept.parameters.empty()) return;
  const bool after_root = !plan.empty() && plan.front().module == &root;
  plan.insert(plan.begin() + (after_root ? 1 : 0), std::move(kept));
  std::erase_if(plan, [](const UnitPlan& unit) { return unit.parameters.empty(); });
}

}  // namespace fsdp
