#include <ignored.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace fsdp {
namespace {

using Ignored = std::vector<torch::nn::Module*>;

void check_ignored(const Module& root, const Ignored& ignored) {
  const auto below = root.modules(/*include_self=*/false);
  for (const torch::nn::Module* module : ignored) {
    if (!module) throw std::invalid_argument("ignored modules: a null pointer");
    if (std::ranges::none_of(below, [&](const auto& other) { return other.get() == module; }))
      throw std::invalid_argument("ignored modules: " + module->name() + " is not below the root");
  }
}

// Of every parameter, whether all places that were passed so far are ignored.
using AllIgnored = std::map<const c10::TensorImpl*, bool>;

void pass(torch::nn::Module& module, const Ignored& ignored, bool inside, AllIgnored& found) {
  inside = inside || std::ranges::find(ignored, &module) != ignored.end();
  for (const at::Tensor& parameter : module.parameters(/*recurse=*/false)) {
    const auto [place, first] = found.try_emplace(parameter.unsafeGetTensorImpl(), inside);
    place->second = place->second && inside;
  }
  for (const auto& child : module.children())
    pass(*child, ignored, inside, found);
}

}  // namespace

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy, const Ignored& ignored) {
  check_ignored(root, ignored);
  AllIgnored left_out;
  pass(root, ignored, false, left_out);
  std::vector<UnitPlan> plan = plan_units(root, policy);
  for (UnitPlan& unit : plan) {
    std::erase_if(unit.parameters, [&](const NamedParameter& parameter) {
      return left_out.at(parameter.tensor.unsafeGetTensorImpl());
    });
  }
  std::erase_if(plan, [](const UnitPlan& unit) { return unit.parameters.empty(); });
  return plan;
}

}  // namespace fsdp
