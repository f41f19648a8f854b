#pragma once

#include <base/torch.h>

namespace fsdp {

// A view of the elements that this rank has of a gradient. What optimizers compute from it is
// right, element by element. norm(), abs().max(), dot() and cat() of it throw std::logic_error:
// torch's clip_grad_norm_() and LBFGS would take them for those of the whole gradient. With one
// rank they are, and the view is a plain one.
at::Tensor part_of_gradient(const at::Tensor& gradients, int64_t offset, int64_t numel,
                            int world_size);

}  // namespace fsdp
