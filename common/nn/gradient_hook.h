#pragma once

#include <base/torch.h>

#include <functional>

namespace fsdp {

// Calls `ready` once per backward pass, when all uses of the leaf `parameter` have been added up in
// its .grad: PyTorch's register_post_accumulate_grad_hook, which LibTorch has no function for. Does
// not call it while there is no .grad: a custom function may return an undefined gradient. The
// hooks of a parameter run in the order of their registration, also those after one that throws.
// Returns a function that removes this hook, at any time.
std::function<void()> register_post_accumulate_grad_hook(const at::Tensor& parameter,
                                                         std::function<void()> ready);

}  // namespace fsdp
