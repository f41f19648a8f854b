#include <ignored.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace fsdp {
namespace {

using Modules = std::vector<torch::nn::Module*>;
using Parameters = std::set<at::TensorImpl*>;  // each once, whatever names it has

// Adds to `kept` the parameters that have a place in the tree under `module`, and outside ignored
// modules.
void keep_outside(const Modules& ignored, torch::nn::Module& module, Parameters& kept) {
  if (std::ranges::count(ignored, &module) != 0) return;
  for (const auto& parameter : module.parameters(/*recurse=*/false))
    kept.insert(parameter.unsafeGetTensorImpl());
  for (const auto& child : module.children())
    keep_outside(ignored, *child, kept);
}

}  // namespace

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy,
                                 const std::vector<torch::nn::Module*>& ignored) {
  const auto below = root.modules(/*include_self=*/false);
  for (const torch::nn::Module* module : ignored) {
    if (std::ranges::none_of(below, [&](const auto& other) { return other.get() == module; }))
      throw std::invalid_argument("ignored: a " + (module ? module->name() : "null pointer") +
                                  " is not below the root");
  }
  Parameters kept;
  keep_outside(ignored, root, kept);
  // Ignored places count when a parameter's unit is chosen, because the model uses it there too.
  std::vector<UnitPlan> plan = plan_units(root, policy);
  for (UnitPlan& unit : plan) {
    std::erase_if(unit.parameters, [&](const NamedParameter& parameter) {
      return !kept.contains(parameter.tensor.unsafeGetTensorImpl());
    });
  }
  std::erase_if(plan, [](const UnitPlan& unit) { return unit.parameters.empty(); });
  return plan;
}

}  // namespace fsdp
