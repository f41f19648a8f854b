#pragma once

#include <base/torch.h>

namespace fsdp {

// A sum of floating point numbers depends on its order, because every addition rounds. An exact sum
// rounds nothing. It consists of whole numbers, which are its digits in base 2^32: digit i counts
// for 2^(32 i - 298). It is kept as fp64 [kDigits]. So you add two exact sums by adding their
// tensors, and you may add up to 2^20 of them, in any order: fp64 holds whole numbers below 2^53
// exactly. A tensor of zeros is the sum of nothing.
inline constexpr int64_t kDigits = 20;

// The exact sum of the squares of an fp32 tensor, on its device. If an element is infinite or NaN,
// so is every digit. On CUDA the CPU waits for the result.
at::Tensor sum_of_squares(const at::Tensor& tensor);

__extension__ using UInt128 = unsigned __int128;  // which programs with -Wpedantic do not have

// The exact sum of one number, whole x 2^exponent, on the CPU. The exponent is at least -298.
at::Tensor exact_sum_of(UInt128 whole, int exponent);

// The number that an exact sum stands for, rounded once to fp64. On CUDA the CPU waits for it.
double value_of_sum(const at::Tensor& exact_sum);

// What sum_of_squares does where the elements are on a GPU. It runs on the CPU too, but slowly.
at::Tensor sum_of_squares_on_gpu(const at::Tensor& tensor);

}  // namespace fsdp
