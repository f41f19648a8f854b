#include <any_dtype.h>
#include <unit_plan.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace fsdp {
namespace {

// The wrapped modules around a place in the tree, from the root down.
using Chain = std::vector<torch::nn::Module*>;

struct Walk {
  std::vector<Module*> wrapped;
  // Units in the order of the walk. A module with two names has two entries; the second gets no
  // parameter.
  std::vector<UnitPlan> plan;
  std::map<at::TensorImpl*, Chain> owners;  // common to all places of the parameter met so far

  void visit(torch::nn::Module& module, const std::string& path, Chain chain) {
    const auto found = std::ranges::find(wrapped, &module);
    if (found != wrapped.end()) {
      chain.push_back(&module);
      plan.push_back({path.empty() ? "root" : path, *found, {}});
    }
    for (const auto& parameter : module.parameters(/*recurse=*/false)) {
      const auto [place, first] = owners.try_emplace(parameter.unsafeGetTensorImpl(), chain);
      if (!first) place->second = common(place->second, chain);
    }
    for (const auto& child : module.named_children())
      visit(*child.value(), path.empty() ? child.key() : path + "." + child.key(), chain);
  }

  // Returns all modules that are in both chains, not only their common beginning: a module that has
  // two names can be around both places on different paths.
  static Chain common(Chain one, const Chain& other) {
    std::erase_if(one, [&](auto* module) { return std::ranges::count(other, module) == 0; });
    return one;
  }
};

}  // namespace

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy) {
  Walk walk{policy(root), {}, {}};
  walk.wrapped.push_back(&root);
  walk.visit(root, "", {});

  std::vector<UnitPlan>& plan = walk.plan;
  for (const Module* module : walk.wrapped) {
    if (std::ranges::count(plan, module, &UnitPlan::module) == 0) {
      throw std::invalid_argument("wrap policy: it chose a " +
                                  (module ? module->name() : "null pointer") +
                                  " that is not part of the model");
    }
  }
  for (const NamedParameter& parameter : distinct_parameters(root)) {
    const auto* owner = walk.owners.at(parameter.tensor.unsafeGetTensorImpl()).back();
    std::ranges::find(plan, owner, &UnitPlan::module)->parameters.push_back(parameter);
  }
  std::erase_if(plan, [](const UnitPlan& unit) { return unit.parameters.empty(); });
  return plan;
}

ShardLayout plan_layout(const Module& root, const std::vector<UnitPlan>& plan, int world_size) {
  ShardLayout layout;
  layout.world_size = world_size;
  std::map<at::TensorImpl*, ShardLayout::Parameter> places;
  for (const UnitPlan& unit : plan) {
    const std::vector<int64_t> numels = numel_of_each(unit.parameters);
    const FlatLayout flat = layout_of_unit(unit.parameters, world_size);
    bool trainable = false;
    for (size_t i = 0; i < numels.size(); ++i) {
      const auto& [name, tensor] = unit.parameters[i];
      trainable = trainable || tensor.requires_grad();
      places[tensor.unsafeGetTensorImpl()] = {name, layout.units.size(), flat.offsets[i], numels[i],
                                              tensor.requires_grad()};
    }
    layout.units.push_back({unit.name, flat.padded_numel, unit.module == &root, trainable});
  }
  for (const NamedParameter& parameter : distinct_parameters(root)) {
    const auto place = places.find(parameter.tensor.unsafeGetTensorImpl());
    if (place != places.end()) layout.parameters.push_back(place->second);
  }
  return layout;
}

}  // namespace fsdp
