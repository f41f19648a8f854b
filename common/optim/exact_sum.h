#pragma once

#include <base/torch.h>

namespace fsdp {

// A sum of floating point numbers depends on its order, because every addition rounds. An exact sum
// rounds nothing. It consists of whole numbers, which are its digits in base 2^32: digit i counts
// for 2^(32 i - 298). It is kept as fp64 [kDigits]. So you add two exact sums by adding their
// tensors, and you may add up to 2^20 of them, in any order: fp64 holds whole numbers below 2^53
// exactly. A tensor of zeros is the sum of nothing.
inline constexpr int64_t kDigits = 20;

// Returns the exact sum of the squares of an fp32, bf16 or fp16 tensor, on the tensor's device. If
// an element is infinite or NaN, every digit of the result is infinite or NaN. On CUDA the CPU
// waits for the result.
at::Tensor sum_of_squares(const at::Tensor& tensor);

__extension__ using UInt128 = unsigned __int128;  // __extension__ avoids a warning of -Wpedantic

// Returns the exact sum of one number, whole x 2^exponent, on the CPU. The exponent is at least
// -298.
at::Tensor exact_sum_of(UInt128 whole, int exponent);

// Returns the number that an exact sum represents, rounded once to fp64. On CUDA the CPU waits for
// the result.
double value_of_sum(const at::Tensor& exact_sum);

// Returns the same as sum_of_squares(), which calls this function if the tensor is on a GPU. For a
// tensor on the CPU it works too, but slowly.
at::Tensor sum_of_squares_on_gpu(const at::Tensor& tensor);

}  // namespace fsdp
