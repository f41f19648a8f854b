#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace fsdp::watch {

constexpr size_t kDims = 8;

// Describes a strided tensor as plain data, because the signal handler of the watchpoint must not
// call PyTorch.
struct Operand {
  uint64_t data;
  uint64_t width;  // number of bytes of an element
  size_t dims;
  std::array<int64_t, kDims> sizes, strides;

  uint64_t numel() const {
    uint64_t product = 1;
    for (size_t d = 0; d < dims; ++d)
      product *= static_cast<uint64_t>(sizes[d]);
    return product;
  }
};

// Returns nothing if `tensor` is undefined, has no strides, is not in the memory of the CPU, or has
// more than kDims dimensions.
std::optional<Operand> operand_of(const at::Tensor& tensor);

}  // namespace fsdp::watch
