#pragma once

#include <unit_plan.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace fsdp {

// For FullyShardOptions::change_plan. In each unit that has both frozen and trainable parameters,
// the frozen ones become a unit of their own, NAME:frozen, of the same module. It comes before the
// unit NAME. So no flat gradient has room for a frozen parameter, and no reduce-scatter sends it.
// This costs one all-gather more for each such unit, in forward and in backward, of no more bytes.
inline void separate_frozen(std::vector<UnitPlan>& plan) {
  std::vector<UnitPlan> changed;
  for (UnitPlan& unit : plan) {
    UnitPlan frozen{unit.name + kFrozenUnit, unit.module, {}};
    const auto begin = unit.parameters.begin();
    const auto end = unit.parameters.end();
    // This is not std::ranges::stable_partition, because clang 14 cannot compile its result.
    const auto trainable = std::stable_partition(begin, end, [](const NamedParameter& parameter) {
      return !parameter.tensor.requires_grad();
    });
    if (trainable != begin && trainable != end) {
      std::move(begin, trainable, std::back_inserter(frozen.parameters));
      unit.parameters.erase(begin, trainable);
      changed.push_back(std::move(frozen));
    }
    changed.push_back(std::move(unit));
  }
  plan = std::move(changed);
}

}  // namespace fsdp
