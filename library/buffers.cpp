#include <buffers.h>

namespace fsdp {

// Broadcasts each tensor from replica 0 to the other replicas, and then within each replica from
// its rank 0 to its other ranks.
void broadcast_from_rank_0(Communicator& comm, const std::vector<NamedParameter>& tensors) {
  const at::NoGradGuard no_grad;
  const auto replicas = comm.replicas();
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() == 0) continue;
    at::Tensor values = tensor.detach().contiguous();
    if (replicas) replicas->broadcast(values, 0, kState).wait();
    comm.broadcast(values, 0, kState).wait();
    if (!values.is_alias_of(tensor)) at::Tensor(tensor).detach().copy_(values);
  }
}

void average_buffers(Communicator& comm, const std::vector<NamedParameter>& buffers) {
  const auto replicas = comm.replicas();
  const at::NoGradGuard no_grad;
  for (const auto& [name, buffer] : buffers) {
    if (!buffer.is_floating_point()) {
      broadcast_from_rank_0(comm, {{name, buffer}});
    } else if (buffer.numel() > 0) {
      const at::Tensor values = buffer.contiguous().clone();
      comm.all_reduce(values, kState).wait();
      if (replicas) replicas->all_reduce(values, kState).wait();
      at::Tensor(buffer).copy_(values.div_(comm.data_parallel_size()));
    }
  }
}

}  // namespace fsdp
