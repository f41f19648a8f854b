#pragma once

#include <comm/communicator.h>

#include <vector>

namespace fsdp {

// Collective. Scales `gradients`, of which this rank has parts, so that their p-norm over all ranks
// is at most max_norm, with the bits and the collectives of ShardedOptimizer::clip_grad_norm(): for
// a norm_type of 2 one all-reduce. Returns the norm before, the same on every rank. Throws what
// check_norm_type() throws. (The optimizer's own function takes gradients of units. Here they may
// lie in .grad of leaves.)
double clip_over_ranks(const std::vector<at::Tensor>& gradients, Communicator& comm,
                       double max_norm, double norm_type);

}  // namespace fsdp
