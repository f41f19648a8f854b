#include <separate_dtypes.h>

#include <algorithm>
#include <utility>

namespace fsdp {
namespace {

// Returns the parameters by dtype, in the order of the first parameter of each dtype.
std::vector<std::vector<NamedParameter>> by_dtype(const std::vector<NamedParameter>& parameters) {
  std::vector<std::vector<NamedParameter>> all;
  for (const NamedParameter& parameter : parameters) {
    const auto dtype = parameter.tensor.scalar_type();
    const auto found = std::ranges::find_if(
        all, [&](const auto& one) { return one.front().tensor.scalar_type() == dtype; });
    (found == all.end() ? all.emplace_back() : *found).push_back(parameter);
  }
  return all;
}

}  // namespace

void separate_dtypes(std::vector<UnitPlan>& plan) {
  std::vector<UnitPlan> changed;
  for (UnitPlan& unit : plan) {
    auto parts = by_dtype(unit.parameters);
    if (parts.size() < 2) {
      changed.push_back(std::move(unit));
      continue;
    }
    for (auto& part : parts) {
      const std::string name = unit.name + dtype_of_unit(part.front().tensor.scalar_type());
      changed.push_back({name, unit.module, std::move(part)});
    }
  }
  plan = std::move(changed);
}

}  // namespace fsdp
