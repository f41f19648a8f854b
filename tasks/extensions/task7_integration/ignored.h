#pragma once

#include <unit_plan.h>

#include <vector>

namespace fsdp {

// Extension (see "Going further" in the handout), FSDP's ignored modules: does what plan_units() of
// unit_plan.h does, but leaves out each parameter that only the `ignored` modules, or modules below
// them, have.
// - A parameter that is left out stays whole on every rank. If you train it, reduce its gradient
//   yourself.
// - If another module has a parameter too, the parameter stays in its unit.
// Throws what plan_units() of unit_plan.h throws. Throws std::invalid_argument if `ignored`
// contains a module that is not below `root`.
std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy,
                                 const std::vector<torch::nn::Module*>& ignored);

}  // namespace fsdp
