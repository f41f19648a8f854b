#pragma once

#include <base/torch.h>

#include <functional>

namespace fsdp {

// Calls `ready` once per backward pass, when all uses of the leaf `parameter` have been added up in
// its .grad: PyTorch's register_post_accumulate_grad_hook, for which LibTorch has no function. Does
// not call `ready` while .grad is undefined, for example because a custom function returned an
// undefined gradient. The hooks of a parameter run in the order of their registration; if one
// throws, the others still run. Returns a function that removes this hook; it may be called at any
// time.
std::function<void()> register_post_accumulate_grad_hook(const at::Tensor& parameter,
                                                         std::function<void()> ready);

}  // namespace fsdp
