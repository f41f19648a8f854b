#pragma once

#include <optim/exact_sum.h>

#include <vector>

namespace fsdp {

// The p-norm of all elements, (sum of |x|^p)^(1/p), where p is norm_type: any number above 0. If it
// is infinite, the norm is the largest |x|. No bit of the result depends on how the elements are
// cut into tensors, or on their order: find the largest |x| of all, and add the sums of the
// tensors.

// Throws std::invalid_argument unless norm_type is above 0. NaN is not.
void check_norm_type(double norm_type);

// The largest |x| of an fp32 tensor: fp64 [1], on its device. It is 0 if there are no elements, and
// NaN if one of them is NaN.
at::Tensor largest_magnitude(const at::Tensor& tensor);

// The exact sum of (|x| / largest)^norm_type, fp64 [kDigits] on the tensor's device. `largest` is
// at least every |x|, so no term is above 1, and none overflows. Each term by itself is rounded
// down to a multiple of 2^-62; then nothing is rounded. The sum is zero where p_norm() does not use
// it: if norm_type or `largest` is not finite, or `largest` is 0. Is computed on the CPU.
at::Tensor sum_of_powers(const at::Tensor& tensor, double norm_type, double largest);

// largest * sum^(1/norm_type). If `largest` is infinite or NaN, so is the norm.
double p_norm(double norm_type, double largest, const at::Tensor& sum_of_powers);

// The p-norm of all elements of fp32 `tensors`, which one process holds. If p is 2, it is the root
// of the exact sum of all squares.
double p_norm(const std::vector<at::Tensor>& tensors, double norm_type);

}  // namespace fsdp
