#pragma once

#include <unit_plan.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Chooses parameters by their names.
using ParameterFilter = std::function<bool(const std::string& parameter)>;

// Extension (see "Going further" in the handout): `keep` chooses parameters. They leave their units
// and become one new unit "root.fp32", whose module is the root. In this unit they can stay fp32
// while all other units are gathered in 16 bits. This costs one collective more in each forward and
// in each backward.
// - The new unit comes after the unit "root". If there is no unit "root", the new unit comes first.
// - Its parameters are in the order of distinct_parameters().
// - A unit that has no parameter left is removed from the plan.
// - If `keep` chooses no parameter, the plan stays as it is.
void keep_in_fp32(std::vector<UnitPlan>& plan, Module& root, const ParameterFilter& keep);

}  // namespace fsdp
