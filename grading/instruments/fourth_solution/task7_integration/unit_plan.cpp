#include <flat_layout.h>
#include <unit_plan.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

using AnyModule = torch::nn::Module;

// The modules that become units.
class Wrapped {
 public:
  Wrapped(Module& root, const std::vector<Module*>& chosen) : modules_{{&root, &root}} {
    for (Module* module : chosen) {
      if (!module) throw std::invalid_argument("wrap policy: chose a null pointer");
      modules_.emplace(module, module);
    }
  }

  Module* find(const AnyModule& module) const {
    const auto found = modules_.find(&module);
    return found == modules_.end() ? nullptr : found->second;
  }

  auto modules() const { return std::views::values(modules_); }

 private:
  std::map<const AnyModule*, Module*> modules_;
};

// Wrapped modules from the root down, each inside the one before.
using Chain = std::vector<Module*>;

// All places of one parameter.
class Places {
 public:
  void add(const Chain& chain) {
    if (!around_all_) around_all_ = chain;
    std::erase_if(*around_all_,
                  [&](Module* module) { return std::ranges::find(chain, module) == chain.end(); });
  }

  Module* owner() const { return around_all_->back(); }  // the root is around every place

 private:
  std::optional<Chain> around_all_;
};

// A walk over all paths from the root. What has two names is passed twice.
class Walk {
 public:
  Walk(Module& root, const Wrapped& wrapped) : wrapped_(wrapped) { visit(root, "", {}); }

  // In the order of the first paths.
  const std::vector<UnitPlan>& units() const { return units_; }
  const Places& places(const at::Tensor& parameter) const {
    return places_.at(parameter.unsafeGetTensorImpl());
  }
  bool passed(const AnyModule* module) const { return passed_.contains(module); }

 private:
  void visit(const AnyModule& module, const std::string& path, Chain around) {
    const bool first = passed_.insert(&module).second;
    if (Module* unit = wrapped_.find(module)) {
      around.push_back(unit);
      if (first) units_.push_back({path.empty() ? "root" : path, unit, {}});
    }
    for (const at::Tensor& parameter : module.parameters(/*recurse=*/false))
      places_[parameter.unsafeGetTensorImpl()].add(around);
    for (const auto& child : module.named_children()) {
      visit(*child.value(), path.empty() ? child.key() : path + "." + child.key(), around);
    }
  }

  const Wrapped& wrapped_;
  std::vector<UnitPlan> units_;
  std::map<const c10::TensorImpl*, Places> places_;
  std::set<const AnyModule*> passed_;
};

}  // namespace

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy) {
  const Wrapped wrapped(root, policy(root));
  const Walk walk(root, wrapped);
  for (const Module* module : wrapped.modules()) {
    if (!walk.passed(module)) {
      throw std::invalid_argument("wrap policy: chose a module that is not part of the root");
    }
  }
  std::vector<UnitPlan> plan = walk.units();
  for (NamedParameter& parameter : distinct_parameters(root)) {
    Module* const owner = walk.places(parameter.tensor).owner();
    std::ranges::find(plan, owner, &UnitPlan::module)->parameters.push_back(std::move(parameter));
  }
  std::erase_if(plan, [](const UnitPlan& unit) { return unit.parameters.empty(); });
  return plan;
}

ShardLayout plan_layout(const Module& root, const std::vector<UnitPlan>& plan, int world_size) {
  ShardLayout layout;
  layout.world_size = world_size;
  std::map<const c10::TensorImpl*, ShardLayout::Parameter> places;
  for (size_t unit = 0; unit < plan.size(); ++unit) {
    const auto& [name, module, parameters] = plan[unit];
    std::vector<int64_t> numels;
    std::ranges::transform(parameters, std::back_inserter(numels),
                           [](const NamedParameter& each) { return each.tensor.numel(); });
    const FlatLayout flat = flat_layout(numels, world_size);
    bool trainable = false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& tensor = parameters[i].tensor;
      trainable = trainable || tensor.requires_grad();
      places[tensor.unsafeGetTensorImpl()] = {parameters[i].name, unit, flat.offsets[i], numels[i],
                                              tensor.requires_grad()};
    }
    layout.units.push_back({name, flat.padded_numel, module == &root, trainable});
  }
  for (const NamedParameter& parameter : distinct_parameters(root)) {
    const auto place = places.find(parameter.tensor.unsafeGetTensorImpl());
    if (place != places.end()) layout.parameters.push_back(place->second);
  }
  return layout;
}

}  // namespace fsdp
