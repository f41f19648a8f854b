#pragma once

#include <base/torch.h>

#include <vector>

namespace fsdp {

// Scales `gradients` in place by PyTorch's factor max_norm / (norm + 1e-6) if this factor is below
// 1. `norm` is the norm of all gradients, including those on other ranks. (ShardedOptimizer
// computes the factor itself, because students write clipping over ranks in task 5.)
void scale_to_max_norm(const std::vector<at::Tensor>& gradients, double max_norm, double norm);

// Scales `gradients`, which this process holds as a whole, so that their p-norm is at most
// max_norm. Returns the norm before scaling. Throws what check_norm_type() throws.
double clip_grad_norm(const std::vector<at::Tensor>& gradients, double max_norm, double norm_type);

}  // namespace fsdp
