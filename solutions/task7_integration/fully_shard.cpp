#include <forward_hooks.h>
#include <fully_shard.h>
#include <ignored.h>

namespace fsdp {

std::shared_ptr<FullySharded> fully_shard(Module& root, std::shared_ptr<Communicator> comm,
                                          const FullyShardOptions& options) {
  // All checks that can throw come before the model is changed.
  auto sharded = std::make_shared<FullySharded>();
  sharded->prefetcher_ = make_prefetcher(options.limit);
  auto plan = plan_units(root, options.wrap, options.ignored);
  if (options.keep_fp32) keep_in_fp32(plan, root, options.keep_fp32);
  if (options.change_plan) options.change_plan(plan);
  for (const UnitPlan& unit : plan)
    if (!options.make_unit) check_fp32(unit.name, unit.parameters);
  const auto make_unit = options.make_unit ? options.make_unit : make_flat_parameter;

  sharded->comm_ = comm;
  sharded->layout_ = plan_layout(root, plan, comm->world_size());
  for (const UnitPlan& unit : plan) {
    sharded->units_.push_back(make_unit(unit.name, unit.parameters, comm, options.materialize));
  }

  // Hooks of one kind run in the order of their registration: forward hooks, backward hooks,
  // prefetch. So this happens to a unit in a step (the number is the task's):
  //
  //   pre-forward    unshard (3), issue the next units (6)
  //   post-forward   reshard (3), count the call (4), record it (6)
  //   pre-backward   unshard (4), issue the units before (6)
  //   its gradients  collect each (4)
  //   post-backward  reduce, reshard (4)
  //   end            reduce and reshard what is left (4), drop the order (6)
  //
  // The root's pre-forward also begins an order, and its post-forward ends it (6). What is issued
  // ahead waits behind the unit's own all-gather, so unshard comes first in both directions.
  sharded->backward_hooks_ = make_backward_hooks();
  sharded->backward_hooks_->on_end([p = sharded->prefetcher_] { p->end_backward(); });
  for (size_t i = 0; i < plan.size(); ++i) {
    Module& module = *plan[i].module;
    const auto& unit = sharded->units_[i];
    const bool is_root = &module == &root;
    // The root stays unsharded after forward, because backward needs it at once.
    register_forward_hooks(module, unit, options.reshard_after_forward && !is_root);
    sharded->backward_hooks_->add(module, unit);
    if (!is_root) sharded->prefetcher_->add(module, unit);
  }
  sharded->prefetcher_->add_root(root);
  return sharded;
}

// Gathers with unshard(), because a solution uses only common/, which has no function for this.
void FullySharded::full_parameters(const ParameterVisitor& visit) const {
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
