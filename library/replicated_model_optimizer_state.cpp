#include <replicated_model.h>
#include <torch_optimizer_state.h>

namespace fsdp {
namespace {

using Entries = std::vector<ShardedParameter>;

// Returns a ShardedParameter for each distinct parameter of `net`, as the functions of
// torch_optimizer_state.h need it. A replica owns all elements of a parameter, so the parameter
// itself is the leaf.
Entries entries_of(const Module& net) {
  Entries entries;
  for (const auto& [name, parameter] : distinct_parameters(net)) {
    ShardedParameter& entry = entries.emplace_back();
    entry.name = name;
    entry.leaf = entry.whole = parameter;
  }
  return entries;
}

}  // namespace

void ReplicatedModel::check_optimizer(torch::optim::Optimizer& optimizer) {
  check_optimizer_on_all_ranks(optimizer, *comm_, entries_of(net_));
}

StateDict ReplicatedModel::optim_state_dict(torch::optim::Optimizer& optimizer) {
  begin(kSaveOptimizerState);
  const Entries entries = entries_of(net_);
  return optimizer_state(optimizer, *comm_, entries, /*replicated=*/true, [&](const auto& own) {
    NamedTensors states;
    for (const auto& [index, tensors] : own)
      for (const auto& [key, tensor] : tensors)
        states[entries[index].name + "/" + key] = tensor.cpu().clone(at::MemoryFormat::Contiguous);
    return states;
  });
}

void ReplicatedModel::load_optim_state_dict(torch::optim::Optimizer& optimizer,
                                            const StateDict& state) {
  begin(kLoadOptimizerState);
  load_optimizer_state(optimizer, *comm_, entries_of(net_), state);
}

}  // namespace fsdp
