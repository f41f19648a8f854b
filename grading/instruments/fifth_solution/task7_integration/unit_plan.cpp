#include <c10/util/irange.h>
#include <flat_layout.h>
#include <unit_plan.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <unordered_map>

namespace fsdp {
namespace {

// Units by their numbers, in the order in which a walk from the root comes to them. If two units
// are around a place, the one with the larger number is nearer to it.
using Around = std::set<size_t>;

class Planner {
 public:
  Planner(Module& root, const std::vector<Module*>& chosen) {
    for (Module* module : chosen) {
      if (!module) throw std::invalid_argument("wrap policy: chose a null pointer");
      chosen_[module] = module;
    }
    chosen_[&root] = &root;
    visit(root, "", {});
    for (const auto& [key, module] : chosen_) {
      if (numbers_.contains(key)) continue;
      throw std::invalid_argument("wrap policy: chose a " + module->name() +
                                  " that is not part of the model");
    }
  }

  std::vector<UnitPlan> plan(const Module& root) && {
    for (const NamedParameter& parameter : distinct_parameters(root)) {
      const Around& around = around_.at(parameter.tensor.unsafeGetTensorImpl());
      units_[*around.rbegin()].parameters.push_back(parameter);
    }
    std::erase_if(units_, [](const UnitPlan& unit) { return unit.parameters.empty(); });
    return std::move(units_);
  }

 private:
  void visit(const torch::nn::Module& module, const std::string& path, Around around) {
    if (const auto unit = chosen_.find(&module); unit != chosen_.end()) {
      const auto [number, is_new] = numbers_.try_emplace(&module, units_.size());
      if (is_new) units_.push_back({path.empty() ? "root" : path, unit->second, {}});
      around.insert(number->second);
    }
    for (const at::Tensor& parameter : module.parameters(/*recurse=*/false))
      place(parameter, around);
    for (const auto& child : module.named_children())
      visit(*child.value(), path.empty() ? child.key() : path + "." + child.key(), around);
  }

  void place(const at::Tensor& parameter, const Around& around) {
    const auto [known, is_first] = around_.try_emplace(parameter.unsafeGetTensorImpl(), around);
    if (is_first) return;
    Around both;
    std::ranges::set_intersection(known->second, around, std::inserter(both, both.end()));
    known->second = std::move(both);
  }

  std::map<const torch::nn::Module*, Module*> chosen_;         // with the root
  std::map<const torch::nn::Module*, size_t> numbers_;         // of the chosen ones that were met
  std::vector<UnitPlan> units_;                                // by their numbers
  std::unordered_map<const c10::TensorImpl*, Around> around_;  // all places of a parameter
};

}  // namespace

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy) {
  return Planner(root, policy(root)).plan(root);
}

ShardLayout plan_layout(const Module& root, const std::vector<UnitPlan>& plan, int world_size) {
  ShardLayout layout{.world_size = world_size, .units = {}, .parameters = {}};
  std::unordered_map<const c10::TensorImpl*, ShardLayout::Parameter> places;
  for (const auto u : c10::irange(plan.size())) {
    const auto& [name, module, parameters] = plan[u];
    const FlatLayout flat = flat_layout(numel_of_each(parameters), world_size);
    ShardLayout::Unit unit{name, flat.padded_numel, module == &root, false};
    for (const auto i : c10::irange(parameters.size())) {
      const at::Tensor& tensor = parameters[i].tensor;
      unit.trainable = unit.trainable || tensor.requires_grad();
      places[tensor.unsafeGetTensorImpl()] = {parameters[i].name, u, flat.offsets[i],
                                              tensor.numel(), tensor.requires_grad()};
    }
    layout.units.push_back(std::move(unit));
  }
  for (const NamedParameter& parameter : distinct_parameters(root)) {
    const auto place = places.find(parameter.tensor.unsafeGetTensorImpl());
    if (place != places.end()) layout.parameters.push_back(place->second);
  }
  return layout;
}

}  // namespace fsdp
