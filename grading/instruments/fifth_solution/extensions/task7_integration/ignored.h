#pragma once

#include <unit_plan.h>

#include <vector>

namespace fsdp {

// Extension (see "Going further" in the handout), FSDP's ignored modules: plan_units(), but a
// parameter all of whose places lie in `ignored` modules, or below them, belongs to no unit. It
// stays as it is, whole on every rank; who trains it reduces it too. One that has a place outside
// them too is in the unit around all its places, as before. Throws std::invalid_argument also if
// `ignored` names a module that is not below `root`.
std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy,
                                 const std::vector<torch::nn::Module*>& ignored);

}  // namespace fsdp
