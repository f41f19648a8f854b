#include <flat_layout.h>
#include <unit_plan.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace fsdp {
namespace {

using Modules = std::vector<const torch::nn::Module*>;

// One place of a module in the tree. A module with two names has two.
struct Place {
  torch::nn::Module* module;
  std::string path;  // "" for the root
  size_t parent;     // index; of the root itself
};

// In the order of a walk from the root: a parent before its children.
void add_places(std::vector<Place>& places, torch::nn::Module& module, const std::string& path,
                size_t parent) {
  const size_t self = places.size();
  places.push_back({&module, path, parent});
  for (const auto& child : module.named_children())
    add_places(places, *child.value(), path.empty() ? child.key() : path + "." + child.key(), self);
}

std::vector<Place> places_of(torch::nn::Module& root) {
  std::vector<Place> places;
  add_places(places, root, "", 0);
  return places;
}

bool contains(const Modules& modules, const torch::nn::Module* module) {
  return std::ranges::find(modules, module) != modules.end();
}

// Those of `modules` that are around a place, from the root inwards.
Modules around(const std::vector<Place>& places, size_t place, const Modules& modules) {
  Modules found;
  for (size_t i = place;; i = places[i].parent) {
    if (contains(modules, places[i].module)) found.insert(found.begin(), places[i].module);
    if (i == places[i].parent) return found;
  }
}

bool is_place(const std::vector<Place>& places, const torch::nn::Module* module) {
  return std::ranges::find(places, module, &Place::module) != places.end();
}

Modules wrapped_modules(Module& root, const WrapPolicy& policy, const std::vector<Place>& places) {
  Modules wrapped{&root};
  for (const Module* module : policy(root)) {
    if (!module) throw std::invalid_argument("wrap policy: chooses a null pointer");
    if (!is_place(places, module)) {
      throw std::invalid_argument("wrap policy: chooses a " + module->name() +
                                  ", which is not part of the root");
    }
    wrapped.push_back(module);
  }
  return wrapped;
}

using PlacesOf = std::map<const c10::TensorImpl*, std::vector<size_t>>;

PlacesOf places_of_parameters(const std::vector<Place>& places) {
  PlacesOf found;
  for (size_t i = 0; i < places.size(); ++i) {
    for (const at::Tensor& parameter : places[i].module->parameters(/*recurse=*/false))
      found[parameter.unsafeGetTensorImpl()].push_back(i);
  }
  return found;
}

// The innermost of the wrapped modules that are around all of `where`.
const torch::nn::Module* owner_of(const std::vector<Place>& places,
                                  const std::vector<size_t>& where, const Modules& wrapped) {
  Modules common = around(places, where[0], wrapped);
  for (const size_t place : where) {
    const Modules others = around(places, place, wrapped);
    std::erase_if(common, [&](const auto* module) { return !contains(others, module); });
  }
  return common.back();
}

// Units without parameters, in the order of the walk.
std::vector<UnitPlan> empty_units(const std::vector<Place>& places, const Modules& wrapped) {
  std::vector<UnitPlan> plan;
  Modules seen;
  for (const auto& [module, path, parent] : places) {
    if (!contains(wrapped, module) || contains(seen, module)) continue;
    seen.push_back(module);
    plan.push_back({path.empty() ? "root" : path, dynamic_cast<Module*>(module), {}});
  }
  return plan;
}

}  // namespace

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy) {
  const std::vector<Place> places = places_of(root);
  const Modules wrapped = wrapped_modules(root, policy, places);
  const PlacesOf parameter_places = places_of_parameters(places);
  std::vector<UnitPlan> plan = empty_units(places, wrapped);
  for (const NamedParameter& parameter : distinct_parameters(root)) {
    const auto& where = parameter_places.at(parameter.tensor.unsafeGetTensorImpl());
    const torch::nn::Module* owner = owner_of(places, where, wrapped);
    const auto unit = std::ranges::find_if(
        plan, [&](const UnitPlan& planned) { return planned.module == owner; });
    unit->parameters.push_back(parameter);
  }
  std::erase_if(plan, [](const UnitPlan& unit) { return unit.parameters.empty(); });
  return plan;
}

ShardLayout plan_layout(const Module& root, const std::vector<UnitPlan>& plan, int world_size) {
  ShardLayout layout;
  layout.world_size = world_size;
  std::map<const c10::TensorImpl*, ShardLayout::Parameter> found;
  for (const UnitPlan& unit : plan) {
    std::vector<int64_t> numels;
    for (const NamedParameter& parameter : unit.parameters)
      numels.push_back(parameter.tensor.numel());
    const FlatLayout flat = flat_layout(numels, world_size);
    bool trainable = false;
    for (size_t i = 0; i < numels.size(); ++i) {
      const auto& [name, tensor] = unit.parameters[i];
      found[tensor.unsafeGetTensorImpl()] = {name, layout.units.size(), flat.offsets[i], numels[i],
                                             tensor.requires_grad()};
      trainable |= tensor.requires_grad();
    }
    layout.units.push_back({unit.name, flat.padded_numel, unit.module == &root, trainable});
  }
  for (const NamedParameter& parameter : distinct_parameters(root)) {
    const auto place = found.find(parameter.tensor.unsafeGetTensorImpl());
    if (place != found.end()) layout.parameters.push_back(place->second);
  }
  return layout;
}

}  // namespace fsdp
