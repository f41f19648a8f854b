#include <buffers.h>
#include <model_checks.h>
#include <module_state.h>
#include <replicated_model.h>

namespace fsdp {

StateDict ReplicatedModel::state_dict(bool rank0_only) {
  begin("state_dict");
  if (broadcast_buffers_) broadcast_from_rank_0(*comm_, distinct_buffers(net_));
  std::vector<RankInvariant> invariants;
  add_buffers(invariants, net_);
  add_values(invariants, "parameter", distinct_parameters(net_), kReplicasDiffer);
  check_same_on_all_ranks(*comm_, invariants, "state_dict");
  if (rank0_only && comm_->rank() != 0) return StateDict();
  return state_of(net_, owned_copy);
}

void ReplicatedModel::load_state_dict(const StateDict& state) {
  begin("load_state_dict");
  check_can_be_loaded(state, net_, *comm_);
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : named_tensors(net_))
    at::Tensor(tensor).copy_(state.at(name));
}

}  // namespace fsdp
