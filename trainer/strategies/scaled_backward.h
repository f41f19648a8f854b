#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fsdp {

// Runs the backward pass of `scale` * `loss`.
void scaled_backward(const at::Tensor& loss, int64_t scale);

}  // namespace fsdp
