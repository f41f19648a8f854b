#pragma once

#include <optim/exact_sum.h>

#include <vector>

namespace fsdp {

// The p-norm of all elements is (sum of |x|^p)^(1/p), where p is norm_type, any number above 0. If
// p is infinite, the norm is the largest |x|. The bits of the result do not depend on how the
// elements are cut into tensors, or on their order. To compute the norm of several tensors, find
// the largest |x| of all, add the results of sum_of_powers() for the tensors, then call p_norm().

// Throws std::invalid_argument if norm_type is 0, negative or NaN.
void check_norm_type(double norm_type);

// Returns the largest |x| of an fp32, bf16 or fp16 tensor: fp64 [1], on the tensor's device. It is
// 0 if the tensor has no elements, and NaN if an element is NaN.
at::Tensor largest_magnitude(const at::Tensor& tensor);

// Returns the exact sum of (|x| / largest)^norm_type, fp64 [kDigits] on the tensor's device. It is
// computed on the CPU.
// - `largest` must be at least every |x|. So no term is above 1, and none overflows.
// - Each term is rounded down to a multiple of 2^-62; the addition rounds nothing.
// - The sum is zero if p_norm() needs no terms: if norm_type or `largest` is not finite, or if
//   `largest` is 0.
at::Tensor sum_of_powers(const at::Tensor& tensor, double norm_type, double largest);

// Returns largest * sum_of_powers^(1/norm_type). If `largest` is infinite or NaN, the norm is too.
double p_norm(double norm_type, double largest, const at::Tensor& sum_of_powers);

// Returns the p-norm of all elements of the `tensors`, which this process holds as a whole. Each is
// fp32, bf16 or fp16. If p is 2, the norm is the square root of the exact sum of all squares.
double p_norm(const std::vector<at::Tensor>& tensors, double norm_type);

}  // namespace fsdp
