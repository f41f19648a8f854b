#include <part_mark.h>
#include <sharded_model.h>
#include <sharded_model_impl.h>
#include <state/gather_flat.h>
#include <torch_optimizer_state.h>

#include <map>
#include <string>

namespace fsdp {
namespace {

using torch::optim::Optimizer;

// Warns on rank 0 of groups without parameters. A program that chooses groups by sizes or numel()
// of this rank's parts chooses other groups than in one process, and a group can be empty on some
// ranks only.
void warn_if_a_group_is_empty(const Optimizer& optimizer, Communicator& comm) {
  for (size_t i = 0; i < optimizer.param_groups().size() && comm.global_rank() == 0; ++i)
    if (optimizer.param_groups()[i].params().empty()) {
      TORCH_WARN("group ", i,
                 " of the optimizer has no parameters; choose groups by dim() or by name: the "
                 "sizes and numel() of model.parameters() are those of this rank's part");
    }
}

// Collective. Gathers whole tensors of the optimizer: own[i][key] is this rank's part of a tensor
// that is cut as the parameter of entries()[i]. Returns the whole tensors under "NAME/KEY".
NamedTensors gather_states(const ShardedModelImpl& sharding,
                           const std::map<size_t, NamedTensors>& own) {
  const PartsAsTensors inside;
  Communicator& comm = sharding.comm();
  const auto& entries = sharding.leaves().entries();
  NamedTensors whole;
  for (size_t unit = 0; unit < sharding.sharded().units().size(); ++unit) {
    const FlatParameter& flat_parameter = *sharding.sharded().units()[unit];
    // The optimizer state of the unit on this rank. For each key of the state, such as "exp_avg", a
    // tensor [padded_numel / W] that is laid out as this rank's shard of the unit.
    NamedTensors shards;
    for (const auto& [index, tensors] : own) {
      const auto& entry = entries[index];
      if (entry.unit != unit) continue;
      for (const auto& [key, tensor] : tensors) {
        at::Tensor& shard = shards[key];
        if (!shard.defined())
          shard = comm.empty(flat_parameter.shard_numel(), tensor.scalar_type()).zero_();
        shard.narrow(0, entry.offset, entry.leaf.numel()).copy_(tensor.flatten());
      }
    }
    for (const auto& [key, shard] : shards) {
      const at::Tensor flat = gather_flat(comm, shard, flat_parameter.unit());
      for (const auto& [index, tensors] : own)
        if (entries[index].unit == unit && tensors.contains(key))
          whole[entries[index].name + "/" + key] =
              cut_out(flat, entries[index].flat, entries[index].whole.sizes());
    }
  }
  comm.wait_for_readers();
  return whole;
}

}  // namespace

void ShardedModel::check_optimizer(Optimizer& optimizer) {
  warn_if_a_group_is_empty(optimizer, sharding_->comm());
  check_optimizer_on_all_ranks(optimizer, sharding_->comm(), sharding_->leaves().entries());
}

StateDict ShardedModel::optim_state_dict(Optimizer& optimizer) {
  sharding_->begin(kSaveOptimizerState);
  Communicator& comm = sharding_->comm();
  warn_if_a_group_is_empty(optimizer, comm);
  return optimizer_state(optimizer, comm, sharding_->leaves().entries(), comm.replicas() != nullptr,
                         [&](const auto& own) { return gather_states(*sharding_, own); });
}

void ShardedModel::load_optim_state_dict(Optimizer& optimizer, const StateDict& state) {
  sharding_->begin(kLoadOptimizerState);
  load_optimizer_state(optimizer, sharding_->comm(), sharding_->leaves().entries(), state);
}

}  // namespace fsdp
