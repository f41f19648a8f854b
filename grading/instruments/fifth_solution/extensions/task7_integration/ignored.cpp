#include <ignored.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace fsdp {
namespace {

using Modules = std::set<const torch::nn::Module*>;

// Adds the parameters that have a place in or below `module` and not in an ignored module.
void find_used(const torch::nn::Module& module, const Modules& ignored,
               std::set<const c10::TensorImpl*>& used) {
  if (ignored.contains(&module)) return;
  for (const at::Tensor& parameter : module.parameters(/*recurse=*/false))
    used.insert(parameter.unsafeGetTensorImpl());
  for (const auto& child : module.children())
    find_used(*child, ignored, used);
}

}  // namespace

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy,
                                 const std::vector<torch::nn::Module*>& ignored) {
  Modules below;
  for (const auto& module : root.modules(/*include_self=*/false))
    below.insert(module.get());
  for (const torch::nn::Module* module : ignored) {
    if (below.contains(module)) continue;
    throw std::invalid_argument("ignored modules: " + (module ? module->name() : "a null pointer") +
                                " is not below the root");
  }

  // Places in ignored modules count in the search for the unit around all places.
  std::vector<UnitPlan> plan = plan_units(root, policy);
  std::set<const c10::TensorImpl*> used;
  find_used(root, Modules(ignored.begin(), ignored.end()), used);
  for (UnitPlan& unit : plan) {
    std::erase_if(unit.parameters, [&](const NamedParameter& parameter) {
      return !used.contains(parameter.tensor.unsafeGetTensorImpl());
    });
  }
  std::erase_if(plan, [](const UnitPlan& unit) { return unit.parameters.empty(); });
  return plan;
}

}  // namespace fsdp
