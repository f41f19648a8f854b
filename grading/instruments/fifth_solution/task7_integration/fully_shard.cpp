#include <c10/util/ScopeExit.h>
#include <forward_hooks.h>
#include <fully_shard.h>
#include <ignored.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace fsdp {

std::shared_ptr<FullySharded> fully_shard(Module& root, std::shared_ptr<Communicator> comm,
                                          const FullyShardOptions& options) {
  // Whatever may be refused comes before the first change of the model.
  const auto sharded = std::make_shared<FullySharded>();
  sharded->comm_ = comm;
  sharded->backward_hooks_ = std::make_shared<BackwardHooks>();
  sharded->prefetcher_ = std::make_shared<Prefetcher>(options.limit);
  std::vector<UnitPlan> plan = plan_units(root, options.wrap, options.ignored);
  if (options.keep_fp32) keep_in_fp32(plan, root, options.keep_fp32);
  sharded->layout_ = plan_layout(root, plan, comm->world_size());
  for (const UnitPlan& unit : plan)
    check_fp32(unit.name, unit.parameters);

  std::ranges::transform(plan, std::back_inserter(sharded->units_), [&](const UnitPlan& unit) {
    return std::make_shared<FlatParameter>(unit.name, unit.parameters, comm, options.materialize);
  });

  for (auto unit = sharded->units_.begin(); const auto& planned : plan) {
    Module& module = *planned.module;
    const bool is_root = &module == &root;
    register_forward_hooks(module, *unit, options.reshard_after_forward && !is_root);
    sharded->backward_hooks_->add(module, *unit);
    if (!is_root) sharded->prefetcher_->add(module, *unit);
    ++unit;
  }
  sharded->prefetcher_->add_root(root);
  sharded->backward_hooks_->on_end(
      [prefetcher = sharded->prefetcher_] { prefetcher->end_backward(); });
  return sharded;
}

void FullySharded::full_parameters(const ParameterVisitor& visit) const {
  const at::NoGradGuard no_grad;
  const auto reshard_others = [&](std::optional<size_t> but) {
    for (size_t unit = 0; unit < units_.size(); ++unit)
      if (unit != but) units_[unit]->reshard();
  };
  // Also if the visitor throws.
  const auto reshard_all = c10::make_scope_exit([&] { reshard_others(std::nullopt); });

  std::optional<size_t> unsharded;
  std::vector<size_t> next(units_.size());  // of each unit, the parameter that comes next
  for (const ShardLayout::Parameter& parameter : layout_.parameters) {
    if (unsharded != parameter.unit) {
      reshard_others(parameter.unit);
      units_[parameter.unit]->unshard();
      unsharded = parameter.unit;
    }
    const NamedParameter& named = units_[parameter.unit]->parameters()[next[parameter.unit]++];
    if (comm_->global_rank() == 0) visit(named.name, named.tensor.detach().cpu());
  }
}

}  // namespace fsdp
