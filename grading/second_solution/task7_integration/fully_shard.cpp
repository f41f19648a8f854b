#include <forward_hooks.h>
#include <fully_shard.h>
#include <ignored.h>

#include <optional>

namespace fsdp {

std::shared_ptr<FullySharded> fully_shard(Module& root, std::shared_ptr<Communicator> comm,
                                          const FullyShardOptions& options) {
  auto prefetcher = make_prefetcher(options.limit);
  std::vector<UnitPlan> plan = plan_units(root, options.wrap, options.ignored);
  if (options.keep_fp32) keep_in_fp32(plan, root, options.keep_fp32);
  for (const auto& [name, module, parameters] : plan)
    check_fp32(name, parameters);
  auto sharded = std::make_shared<FullySharded>();
  sharded->comm_ = comm;
  sharded->layout_ = plan_layout(root, plan, comm->world_size());
  auto backward = sharded->backward_hooks_ = make_backward_hooks();
  sharded->prefetcher_ = prefetcher;
  backward->on_end([prefetcher] { prefetcher->end_backward(); });
  for (const UnitPlan& unit : plan) {
    sharded->units_.push_back(
        make_flat_parameter(unit.name, unit.parameters, comm, options.materialize));
  }
  for (size_t i = 0; i < plan.size(); ++i) {
    const bool is_root = plan[i].module == &root;
    register_forward_hooks(*plan[i].module, sharded->units_[i],
                           options.reshard_after_forward && !is_root);
    backward->add(*plan[i].module, sharded->units_[i]);
    if (!is_root) prefetcher->add(*plan[i].module, sharded->units_[i]);
  }
  prefetcher->add_root(root);
  return sharded;
}

void FullySharded::full_parameters(const ParameterVisitor& visit) const {
  at::NoGradGuard no_grad;
  std::optional<size_t> gathered;
  const auto reshard_last = [&] {
    if (gathered) units_[*gathered]->reshard();
  };
  for (const auto& parameter : layout_.parameters) {
    const size_t unit = parameter.unit;
    if (gathered != unit) {
      reshard_last();
      gathered = unit;
      units_[unit]->unshard();
    }
    if (comm_->rank() != 0) continue;
    for (const NamedParameter& held : units_[unit]->parameters()) {
      if (held.name == parameter.name) visit(held.name, held.tensor.detach().cpu());
    }
  }
  reshard_last();
}

}  // namespace fsdp
