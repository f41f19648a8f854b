#pragma once

#include <base/torch.h>

#include <vector>

namespace fsdp {

// Scales `gradients` in place by PyTorch's factor max_norm / (norm + 1e-6) if it is below 1. `norm`
// is that of all gradients, wherever they are. (ShardedOptimizer has a factor of its own, because
// clipping over ranks is what students write in task 5.)
void scale_to_max_norm(const std::vector<at::Tensor>& gradients, double max_norm, double norm);

// Scales fp32 `gradients`, which one process holds, so that their p-norm is at most max_norm.
// Returns the norm before. Throws what check_norm_type() throws.
double clip_grad_norm(const std::vector<at::Tensor>& gradients, double max_norm, double norm_type);

}  // namespace fsdp
