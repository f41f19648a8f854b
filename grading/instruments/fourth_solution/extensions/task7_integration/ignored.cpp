#include <ignored.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace fsdp {
namespace {

using AnyModule = torch::nn::Module;
using Variables = std::multiset<const c10::TensorImpl*>;

// Every parameter as often as the tree has it.
void add_places(const AnyModule& module, Variables& places) {
  for (const at::Tensor& parameter : module.parameters(/*recurse=*/false))
    places.insert(parameter.unsafeGetTensorImpl());
  for (const auto& child : module.children())
    add_places(*child, places);
}

// The same, of the parts of the tree below the ignored modules.
void add_ignored_places(const AnyModule& module, const std::set<const AnyModule*>& ignored,
                        Variables& places) {
  if (ignored.contains(&module)) {
    add_places(module, places);
    return;
  }
  for (const auto& child : module.children())
    add_ignored_places(*child, ignored, places);
}

}  // namespace

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy,
                                 const std::vector<AnyModule*>& ignored) {
  std::set<const AnyModule*> below;
  for (const auto& module : root.modules(/*include_self=*/false))
    below.insert(module.get());
  for (const AnyModule* module : ignored) {
    if (below.contains(module)) continue;
    throw std::invalid_argument("ignored module '" + (module ? module->name() : "null") +
                                "' is not below the root");
  }
  Variables places;
  Variables ignored_places;
  add_places(root, places);
  add_ignored_places(root, {ignored.begin(), ignored.end()}, ignored_places);
  std::vector<UnitPlan> plan = plan_units(root, policy);
  for (UnitPlan& unit : plan) {
    std::erase_if(unit.parameters, [&](const NamedParameter& parameter) {
      const c10::TensorImpl* variable = parameter.tensor.unsafeGetTensorImpl();
      return ignored_places.count(variable) == places.count(variable);
    });
  }
  std::erase_if(plan, [](const UnitPlan& unit) { return unit.parameters.empty(); });
  return plan;
}

}  // namespace fsdp
