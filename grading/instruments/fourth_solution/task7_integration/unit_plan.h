#pragma once

#include <layout/shard_layout.h>
#include <wrap_policy.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// A module that becomes a unit, and the parameters that its unit holds.
struct UnitPlan {
  std::string name;  // the module's path, of two the first; "root" for the root
  Module* module;
  std::vector<NamedParameter> parameters;  // in the order of distinct_parameters() of the root
};

// Gives every distinct parameter to one unit: that of the nearest wrapped module around it. A tied
// parameter has several places and goes to the nearest wrapped module around all of them, so that
// it is unsharded wherever it is used. A module that has two names is around both its places. The
// order is that of a walk from the root: a parent before its children, children in the order of
// their registration. A module that gets no parameter is left out. Throws std::invalid_argument if
// the policy chooses a null pointer or what is not part of `root`, and what the policy throws.
std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy);

// Extension (see "Going further" in the handout): the same, but a parameter all of whose places lie
// in `ignored` modules, or below them, belongs to no unit. One that has a place outside them too is
// in the unit around all its places, as before. Throws std::invalid_argument also if `ignored`
// names a module that is not below `root`.
std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy,
                                 const std::vector<torch::nn::Module*>& ignored);

// Chooses parameters by their names.
using ParameterFilter = std::function<bool(const std::string& parameter)>;

// Extension: moves the parameters that `keep` chooses out of their units, into one unit "root.fp32"
// of the root: there they can stay fp32 while all other units are gathered in 16 bits, for one
// collective more in each pass. It comes after the unit "root", or first if there is none. Its
// parameters are in the order of distinct_parameters(). A unit that is left without a parameter is
// left out. If `keep` chooses none, the plan stays as it is.
void keep_in_fp32(std::vector<UnitPlan>& plan, Module& root, const ParameterFilter& keep);

// Where the plan puts every element on `world_size` ranks. Each unit is laid out by flat_layout().
// If the root got no parameter, no unit counts as the root.
ShardLayout plan_layout(const Module& root, const std::vector<UnitPlan>& plan, int world_size);

}  // namespace fsdp
