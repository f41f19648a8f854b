#pragma once

#include <unit_plan.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Chooses parameters by their names.
using ParameterFilter = std::function<bool(const std::string& parameter)>;

// Extension (see "Going further" in the handout): moves the parameters that `keep` chooses out of
// their units, into one unit "root.fp32" of the root. There they can stay fp32 while all other
// units are gathered in 16 bits, for one collective more in each pass.
// - The new unit comes after the unit "root", or first if there is none.
// - Its parameters are in the order of distinct_parameters().
// - A unit that is left without a parameter is left out.
// - If `keep` chooses no parameter, the plan stays as it is.
void keep_in_fp32(std::vector<UnitPlan>& plan, Module& root, const ParameterFilter& keep);

}  // namespace fsdp
