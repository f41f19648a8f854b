#pragma once

#include <comm/communicator.h>
#include <optim/shard_layout.h>

#include <vector>

namespace fsdp {

// Collective: every rank gets the values of global rank 0.
void broadcast_from_rank_0(Communicator& comm, const std::vector<NamedParameter>& tensors);

// Collective: floating-point ones become the mean over all ranks, the others global rank 0's.
void average_buffers(Communicator& comm, const std::vector<NamedParameter>& buffers);

}  // namespace fsdp
