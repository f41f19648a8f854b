#pragma once

#include <comm/communicator.h>

#include <vector>

namespace fsdp {

// Collective. Scales `gradients`, this rank's parts of the gradients, so that their p-norm over all
// ranks is at most max_norm. Returns the norm before scaling, the same on every rank. Bits and
// collectives are those of ShardedOptimizer::clip_grad_norm(): for a norm_type of 2, one
// all-reduce. Throws what check_norm_type() throws. (ShardedOptimizer clips the gradients of units;
// this function clips any gradients, such as those in .grad of leaves.)
double clip_over_ranks(const std::vector<at::Tensor>& gradients, Communicator& comm,
                       double max_norm, double norm_type);

}  // namespace fsdp
