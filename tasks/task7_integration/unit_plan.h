#pragma once

#include <optim/shard_layout.h>
#include <wrap_policy.h>

#include <string>
#include <vector>

namespace fsdp {

// A module that becomes a unit, and the parameters that its unit holds.
struct UnitPlan {
  std::string name;  // the module's path, the first one if it has two; "root" for the root
  Module* module;
  std::vector<NamedParameter> parameters;  // in the order of distinct_parameters() of the root
};

// Gives every distinct parameter to one unit: the unit of the nearest wrapped module around it. (A
// module is wrapped if the policy chooses it. The root is always wrapped.)
// - A tied parameter has several places. It goes to the nearest wrapped module around all of them,
//   so that it is unsharded wherever it is used.
// - A module that has two names has two places in the model, and is around both.
// - The units are in the order of a walk from the root: a parent comes before its children, and
//   children come in the order of their registration.
// - A module that gets no parameter is left out.
// Throws what the policy throws. Throws std::invalid_argument if the policy chooses a null pointer
// or a module that is not part of `root`.
std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy);

// Returns where the plan puts every element on `world_size` ranks. Each unit is laid out by
// flat_layout(). If the root got no parameter, no unit counts as the root.
ShardLayout plan_layout(const Module& root, const std::vector<UnitPlan>& plan, int world_size);

}  // namespace fsdp
