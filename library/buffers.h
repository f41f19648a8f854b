#pragma once

#include <comm/communicator.h>
#include <optim/shard_layout.h>

#include <vector>

namespace fsdp {

// Collective. Copies global rank 0's values of `tensors` to every rank.
void broadcast_from_rank_0(Communicator& comm, const std::vector<NamedParameter>& tensors);

// Collective. Replaces each floating-point buffer by its mean over all ranks, and every other
// buffer by the buffer of global rank 0.
void average_buffers(Communicator& comm, const std::vector<NamedParameter>& buffers);

}  // namespace fsdp
