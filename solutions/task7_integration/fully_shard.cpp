#include <forward_hooks.h>
#include <fully_shard.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace fsdp {
namespace {

// The wrapped modules around a place in the tree, from the root down.
using Chain = std::vector<torch::nn::Module*>;

struct Walk {
  const std::vector<torch::nn::Module*>& wrapped;
  // In the order met; a module with two names comes twice, and the second gets no parameter.
  std::vector<std::pair<std::string, torch::nn::Module*>> units;
  std::map<at::TensorImpl*, Chain> owners;  // common to all places of the parameter met so far

  void visit(torch::nn::Module& module, const std::string& path, Chain chain) {
    if (std::find(wrapped.begin(), wrapped.end(), &module) != wrapped.end()) {
      chain.push_back(&module);
      units.emplace_back(path, &module);
    }
    for (const auto& parameter : module.parameters(/*recurse=*/false)) {
      const auto [place, first] = owners.try_emplace(parameter.unsafeGetTensorImpl(), chain);
      if (!first) place->second = common(place->second, chain);
    }
    for (const auto& child : module.named_children()) {
      visit(*child.value(), path.empty() ? child.key() : path + "." + child.key(), chain);
    }
  }

  static Chain common(const Chain& one, const Chain& other) {
    if (one.back() == other.back()) return one;  // one module under two names
    const auto end = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
    return Chain(one.begin(), end);
  }
};

}  // namespace

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy) {
  std::vector<torch::nn::Module*> wrapped{&root};
  for (Module* module : policy(root))
    wrapped.push_back(module);
  Walk walk{wrapped, {}, {}};
  walk.visit(root, "", {});

  std::vector<UnitPlan> plan;
  for (const auto& [path, module] : walk.units) {
    plan.push_back({path.empty() ? "root" : path, dynamic_cast<Module*>(module), {}});
  }
  for (const torch::nn::Module* module : wrapped) {
    const auto found = [&](const UnitPlan& unit) { return unit.module == module; };
    if (std::none_of(plan.begin(), plan.end(), found)) {
      throw std::invalid_argument("wrap policy: it chose a " + module->name() +
                                  " that is not part of the model");
    }
  }
  for (const NamedParameter& parameter : distinct_parameters(root)) {
    const auto* owner = walk.owners.at(parameter.tensor.unsafeGetTensorImpl()).back();
    const auto unit = std::find_if(plan.begin(), plan.end(),
                                   [&](const UnitPlan& u) { return u.module == owner; });
    unit->parameters.push_back(parameter);
  }
  std::erase_if(plan, [](const UnitPlan& unit) { return unit.parameters.empty(); });
  return plan;
}

ShardLayout plan_layout(const Module& root, const std::vector<UnitPlan>& plan, int world_size) {
  ShardLayout layout;
  layout.world_size = world_size;
  std::map<at::TensorImpl*, ShardLayout::Parameter> places;
  for (const UnitPlan& unit : plan) {
    std::vector<int64_t> numels;
    for (const auto& parameter : unit.parameters)
      numels.push_back(parameter.tensor.numel());
    const FlatLayout flat = flat_layout(numels, world_size);
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
    layout.parameters.push_back(places.at(parameter.tensor.unsafeGetTensorImpl()));
  }
  return layout;
}

std::shared_ptr<FullySharded> fully_shard(Module& root, std::shared_ptr<Communicator> comm,
                                          const FullyShardOptions& options) {
  if (options.limit < 1) throw std::invalid_argument("fully_shard: limit must be at least 1");
  auto sharded = std::make_shared<FullySharded>();
  auto plan = plan_units(root, options.wrap);
  sharded->comm_ = comm;
  sharded->layout_ = plan_layout(root, plan, comm->world_size());
  sharded->backward_hooks_ = std::make_shared<BackwardHooks>();
  sharded->prefetcher_ = std::make_shared<Prefetcher>(options.limit);
  sharded->backward_hooks_->on_end([p = sharded->prefetcher_] { p->end_backward(); });

  for (UnitPlan& unit : plan) {
    const bool is_root = unit.module == &root;
    auto flat = std::make_shared<FlatParameter>(unit.name, std::move(unit.parameters), comm,
                                                options.materialize);
    sharded->units_.push_back(flat);
    register_forward_hooks(*unit.module, flat, options.reshard_after_forward && !is_root);
    sharded->backward_hooks_->add(*unit.module, flat);
    if (!is_root) sharded->prefetcher_->add(*unit.module, flat);
  }
  sharded->prefetcher_->add_root(root);
  return sharded;
}

void FullySharded::full_parameters(const ParameterVisitor& visit) const {
  at::NoGradGuard no_grad;
  std::vector<size_t> next(units_.size());  // parameter of each unit that has not been visited
  size_t gathered = units_.size();
  for (const auto& parameter : layout_.parameters) {
    FlatParameter& unit = *units_[parameter.unit];
    if (gathered != parameter.unit) {
      if (gathered < units_.size()) units_[gathered]->reshard();
      unit.unshard();
      gathered = parameter.unit;
    }
    const auto& named = unit.parameters()[next[parameter.unit]++];
    if (comm_->rank() == 0) visit(named.name, named.tensor.detach().cpu());
  }
  if (gathered < units_.size()) units_[gathered]->reshard();
}

}  // namespace fsdp
