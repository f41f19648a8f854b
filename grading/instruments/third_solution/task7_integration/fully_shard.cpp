#include <forward_hooks.h>
#include <fully_shard.h>
#include <ignored.h>

namespace fsdp {
namespace {

// The tasks' hooks, in the order in which they have to run. The root's come first; it is the
// prefetcher's root even if it has no unit, and is added once if it has two.
void register_hooks(Module& root, const std::vector<UnitPlan>& plan, const FullySharded& sharded,
                    bool reshard_after_forward) {
  const auto& units = sharded.units();
  for (size_t i = 0; i < plan.size(); ++i) {
    const bool is_root = plan[i].module == &root;
    register_forward_hooks(*plan[i].module, units[i], reshard_after_forward && !is_root);
    sharded.backward_hooks()->add(*plan[i].module, units[i]);
  }
  sharded.prefetcher()->add_root(root);
  for (size_t i = 0; i < plan.size(); ++i)
    if (plan[i].module != &root) sharded.prefetcher()->add(*plan[i].module, units[i]);
}

}  // namespace

std::shared_ptr<FullySharded> fully_shard(Module& root, std::shared_ptr<Communicator> comm,
                                          const FullyShardOptions& options) {
  const auto sharded = std::make_shared<FullySharded>();
  sharded->comm_ = comm;
  sharded->backward_hooks_ = std::make_shared<BackwardHooks>();
  sharded->prefetcher_ = std::make_shared<Prefetcher>(options.limit);
  std::vector<UnitPlan> plan = plan_units(root, options.wrap, options.ignored);
  keep_in_fp32(plan, root, options.keep_fp32);
  sharded->layout_ = plan_layout(root, plan, comm->world_size());
  for (const UnitPlan& unit : plan)
    check_fp32(unit.name, unit.parameters);
  // Until here the model is as it was.
  for (const UnitPlan& unit : plan) {
    sharded->units_.push_back(
        std::make_shared<FlatParameter>(unit.name, unit.parameters, comm, options.materialize));
  }
  register_hooks(root, plan, *sharded, options.reshard_after_forward);
  sharded->backward_hooks_->on_end(
      [prefetcher = sharded->prefetcher_] { prefetcher->end_backward(); });
  return sharded;
}

void FullySharded::full_parameters(const ParameterVisitor& visit) const {
  for (const auto& unit : units_)
    unit->reshard();
  std::vector<size_t> next(units_.size());  // by unit, the parameter whose turn it is
  std::shared_ptr<FlatParameter> unsharded;
  try {
    for (const auto& parameter : layout_.parameters) {
      const auto& unit = units_[parameter.unit];
      if (unsharded && unsharded != unit) unsharded->reshard();
      unsharded = unit;
      unit->unshard();
      const at::Tensor& whole = unit->parameters()[next[parameter.unit]++].tensor;
      if (comm_->global_rank() == 0) visit(parameter.name, whole.detach().cpu());
    }
  } catch (...) {
    if (unsharded) unsharded->reshard();
    throw;
  }
  if (unsharded) unsharded->reshard();
}

}  // namespace fsdp
