#include <ignored.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_set>

namespace fsdp {
namespace {

bool holds(const torch::nn::Module& root, const torch::nn::Module* module) {
  const auto below = root.modules(/*include_self=*/false);
  return std::any_of(below.begin(), below.end(),
                     [&](const auto& other) { return other.get() == module; });
}

// The parameters that are used somewhere else than in the ignored modules.
struct Used {
  const std::vector<torch::nn::Module*>& ignored;
  std::unordered_set<const c10::TensorImpl*> parameters{};

  void add(torch::nn::Module& module) {
    if (std::find(ignored.begin(), ignored.end(), &module) != ignored.end()) return;
    for (const at::Tensor& parameter : module.parameters(/*recurse=*/false))
      parameters.insert(parameter.unsafeGetTensorImpl());
    for (const auto& child : module.children())
      add(*child);
  }
};

}  // namespace

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy,
                                 const std::vector<torch::nn::Module*>& ignored) {
  for (const torch::nn::Module* module : ignored) {
    if (!holds(root, module)) {
      throw std::invalid_argument("ignored modules: the model does not hold this " +
                                  (module ? module->name() : "nullptr") + ", or is it");
    }
  }
  Used used{ignored};
  used.add(root);
  std::vector<UnitPlan> plan;
  for (const UnitPlan& unit : plan_units(root, policy)) {
    UnitPlan rest{unit.name, unit.module, {}};
    for (const NamedParameter& parameter : unit.parameters) {
      if (used.parameters.count(parameter.tensor.unsafeGetTensorImpl()) != 0)
        rest.parameters.push_back(parameter);
    }
    if (!rest.parameters.empty()) plan.push_back(rest);
  }
  return plan;
}

}  // namespace fsdp
