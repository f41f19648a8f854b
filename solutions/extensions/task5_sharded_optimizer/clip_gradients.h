#pragma once

#include <comm/communicator.h>

#include <vector>

namespace fsdp {

// Clips `gradients`, this rank's parts of the gradients, as ShardedOptimizer::clip_grad_norm()
// clips those of its units, with the same collectives. For a norm_type of 2: one all-reduce.
double clip_gradients(const std::vector<at::Tensor>& gradients, Communicator& comm, double max_norm,
                      double norm_type);

}  // namespace fsdp
