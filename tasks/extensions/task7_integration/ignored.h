#pragma once

#include <unit_plan.h>

#include <vector>

namespace fsdp {

// Extension (see "Going further" in the handout), FSDP's ignored modules: plan_units(), but leaves
// out each parameter that only `ignored` modules, or modules below them, have.
// - A parameter that is left out stays whole on every rank. If you train it, reduce its gradient
//   yourself.
// - A parameter that another module has too stays in its unit.
// Throws what plan_units() throws, and std::invalid_argument if `ignored` names a module that is
// not below `root`.
std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy,
                                 const std::vector<torch::nn::Module*>& ignored);

}  // namespace fsdp
