#include <flat_layout.h>
#include <unit_plan.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <unordered_map>

namespace fsdp {
namespace {

// The modules on the way from the root of the model to a module that has registered a parameter.
using Path = std::vector<const torch::nn::Module*>;

// For each parameter, the paths to all modules that have registered it; for each module, its first
// name.
struct Tree {
  explicit Tree(const torch::nn::Module& root) { add(root, {}, ""); }

  std::unordered_map<const c10::TensorImpl*, std::vector<Path>> places;
  // All modules of the model, each once with its first name, parents before children.
  std::vector<std::pair<const torch::nn::Module*, std::string>> modules;

  bool has(const torch::nn::Module* module) const {
    return std::any_of(modules.begin(), modules.end(),
                       [&](const auto& known) { return known.first == module; });
  }

 private:
  void add(const torch::nn::Module& module, Path path, const std::string& name) {
    path.push_back(&module);
    if (!has(&module)) modules.emplace_back(&module, name);
    for (const at::Tensor& parameter : module.parameters(/*recurse=*/false))
      places[parameter.unsafeGetTensorImpl()].push_back(path);
    for (const auto& child : module.named_children())
      add(*child.value(), path, name.empty() ? child.key() : name + "." + child.key());
  }
};

bool holds(const Path& path, const torch::nn::Module* module) {
  return std::find(path.begin(), path.end(), module) != path.end();
}

// Returns the innermost module of `units` that is on the paths to all `places` of a parameter.
const torch::nn::Module* owner_of(const std::vector<Path>& places,
                                  const std::set<const torch::nn::Module*>& units) {
  const auto around_all = [&](const torch::nn::Module* module) {
    return units.count(module) != 0 &&
           std::all_of(places.begin(), places.end(),
                       [&](const Path& place) { return holds(place, module); });
  };
  return *std::find_if(places[0].rbegin(), places[0].rend(), around_all);
}

}  // namespace

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy) {
  const Tree tree(root);
  std::unordered_map<const torch::nn::Module*, Module*> chosen{{&root, &root}};
  std::set<const torch::nn::Module*> units{&root};
  for (Module* module : policy(root)) {
    if (module == nullptr || !tree.has(module)) {
      throw std::invalid_argument("wrap policy: a " + (module ? module->name() : "nullptr") +
                                  " was chosen that the model does not hold");
    }
    units.insert(module);
    chosen[module] = module;
  }

  std::unordered_map<const torch::nn::Module*, std::vector<NamedParameter>> owned;
  for (const NamedParameter& parameter : distinct_parameters(root)) {
    const auto& places = tree.places.at(parameter.tensor.unsafeGetTensorImpl());
    owned[owner_of(places, units)].push_back(parameter);
  }
  std::vector<UnitPlan> plan;
  for (const auto& [module, name] : tree.modules) {
    if (owned.count(module) == 0) continue;
    plan.push_back({module == &root ? "root" : name, chosen.at(module), owned.at(module)});
  }
  return plan;
}

ShardLayout plan_layout(const Module& root, const std::vector<UnitPlan>& plan, int world_size) {
  ShardLayout layout;
  layout.world_size = world_size;
  // For each parameter: the index of its unit, and its offset in the unit's flat tensor.
  std::unordered_map<const c10::TensorImpl*, std::pair<size_t, int64_t>> places;
  for (const UnitPlan& unit : plan) {
    const FlatLayout flat = flat_layout(numel_of_each(unit.parameters), world_size);
    bool trainable = false;
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      const at::Tensor& parameter = unit.parameters[i].tensor;
      trainable |= parameter.requires_grad();
      places[parameter.unsafeGetTensorImpl()] = {layout.units.size(), flat.offsets[i]};
    }
    layout.units.push_back({unit.name, flat.padded_numel, unit.module == &root, trainable});
  }
  for (const auto& [name, parameter] : distinct_parameters(root)) {
    const auto place = places.find(parameter.unsafeGetTensorImpl());
    if (place == places.end()) continue;
    const auto [unit, offset] = place->second;
    layout.parameters.push_back({name, unit, offset, parameter.numel(), parameter.requires_grad()});
  }
  return layout;
}

}  // namespace fsdp
