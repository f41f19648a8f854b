#include <memory/storage_guard.h>
#include <model_checks.h>
#include <module_state.h>
#include <sharded_model.h>
#include <sharded_model_impl.h>
#include <sharded_optimizer.h>
#include <state/gather_flat.h>
#include <state/model_state.h>

#include <map>
#include <stdexcept>

namespace fsdp {
namespace {

// Collective. Throws std::invalid_argument if buffers or parameters of ignored modules, which each
// rank has as a whole, differ between ranks, and std::logic_error if another object has sharded
// such a parameter. With broadcast_buffers, copies rank 0's buffers first.
void check_unsharded(ShardedModelImpl& sharding, const std::string& where) {
  if (sharding.options().broadcast_buffers) sharding.broadcast_buffers();
  const auto ignored = ignored_parameters(sharding.net(), sharding.sharded());
  for (const auto& [name, parameter] : ignored)
    if (is_freed(parameter))
      throw std::logic_error(
          where + ": parameter " + name +
          " of an ignored module is sharded by another object, which alone has its "
          "values; shard it with the other modules, or replicate it");
  std::vector<RankInvariant> invariants;
  add_buffers(invariants, sharding.net());
  add_values(
      invariants, "parameter", ignored,
      "its module is ignored: copy them from one rank by Communicator::broadcast() (with "
      "replicas, first by that of replicas()), and all-reduce its gradient before each step, "
      "or freeze it");
  check_same_on_all_ranks(sharding.comm(), invariants, where);
}

}  // namespace

StateDict ShardedModel::state_dict(bool rank0_only) {
  const CallerScope caller("state_dict()");
  sharding_->begin("state_dict");
  Communicator& comm = sharding_->comm();
  check_unsharded(*sharding_, "state_dict");
  const bool keeps = !rank0_only || comm.rank() == 0;
  const at::NoGradGuard no_grad;
  std::map<at::TensorImpl*, at::Tensor> whole;
  // An element for each parameter whose values must be equal in all replicas of the model.
  std::vector<RankInvariant> invariants;
  for (size_t unit = 0; unit < units().size(); ++unit) {
    const at::Tensor flat = gather_flat(comm, units()[unit]->shard(), units()[unit]->unit());
    for (const auto& entry : sharding_->leaves().entries()) {
      if (entry.unit != unit || (!keeps && !comm.replicas())) continue;
      const at::Tensor parameter = cut_out(flat, entry.flat, entry.whole.sizes());
      if (keeps) whole[entry.whole.unsafeGetTensorImpl()] = parameter;
      // With rank0_only, only rank 0 keeps the values of the parameters, so the replicas compare
      // hashes of the values and not the values themselves.
      if (comm.replicas())
        invariants.push_back(invariant_of_values("parameter " + entry.name, parameter,
                                                 kReplicasDiffer,
                                                 /*keep=*/false));
    }
  }
  comm.wait_for_readers();
  if (comm.replicas()) check_same_on_all_ranks(comm, invariants, "state_dict");
  if (!keeps) return StateDict();
  return state_of(sharding_->net(), [&](const at::Tensor& tensor) {
    const auto found = whole.find(tensor.unsafeGetTensorImpl());
    return found != whole.end() ? found->second : owned_copy(tensor);
  });
}

void ShardedModel::load_state_dict(const StateDict& state) {
  const CallerScope caller("load_state_dict()");
  sharding_->begin("load_state_dict");
  check_can_be_loaded(state, sharding_->net(), sharding_->comm());

  const at::NoGradGuard no_grad;
  auto own = named_tensors(sharding_->net());
  for (const auto& entry : sharding_->leaves().entries()) {
    const at::Tensor given = state.at(entry.name).flatten();
    at::Tensor(entry.leaf)
        .copy_(given.narrow(0, entry.begin, entry.leaf.numel()).view(entry.leaf.sizes()));
    std::erase_if(own, [&](const auto& named) { return named.second.is_same(entry.whole); });
  }
  // `own` now has only the buffers of this rank's model and the parameters of its ignored modules.
  for (auto& [name, tensor] : own)
    tensor.copy_(state.at(name));
}

ModelState ShardedModel::checkpoint_state(ShardedOptimizer& optimizer) {
  const CallerScope caller("checkpoint_state()");
  sharding_->begin("checkpoint_state");
  for (const auto& unit : units()) {
    if (unit->shard().scalar_type() == at::kFloat) continue;
    throw std::logic_error("checkpoint_state: parameter " + unit->parameters().front().name +
                           " is " + dtype_name(unit->shard().scalar_type()) +
                           ", and a checkpoint has fp32 parameters; save state_dict() and "
                           "optim_state_dict() with save_state_dict()");
  }
  check_unsharded(*sharding_, "checkpoint_state");
  ModelState state;
  for (const auto& [name, parameter] : distinct_parameters(sharding_->net()))
    state.parameters.push_back({name, parameter.sizes().vec()});
  auto whole = ignored_parameters(sharding_->net(), sharding_->sharded());
  for (const auto& buffer : distinct_buffers(sharding_->net())) {
    state.parameters.push_back(
        {buffer.name, buffer.tensor.sizes().vec(), buffer.tensor.scalar_type()});
    whole.push_back(buffer);
  }
  state.ranges = optimizer.state();
  for (const auto& [name, tensor] : whole) {
    if (!tensor.is_contiguous())
      throw std::invalid_argument(
          "checkpoint_state: " + name +
          " must be contiguous; make it so with .contiguous() before you register it");
    if (tensor.numel() > 0)
      state.ranges.push_back({name, 0, tensor.numel(), tensor.detach().view({-1}), {}, {}, {}});
  }
  return state;
}

}  // namespace fsdp
