#pragma once

#include <base/torch.h>

#include <cstdint>
#include <vector>

// Graded code may have fallbacks of operators (task 1 asks for one), and may return tensors of a
// class of its own. So these functions, which look at what it returns, call no operator. They throw
// std::logic_error if operators of this thread go to a fallback first, or if a tensor's own do.
namespace fsdp {

// The first part of these checks alone.
void check_dispatch();

// All elements in row-major order. The tensor is dense and on the CPU.
std::vector<uint8_t> bytes_of(const at::Tensor& tensor);

// The same as numbers, if they are of type T; throws std::logic_error if not.
template <typename T>
std::vector<T> values_of(const at::Tensor& tensor);

// Whether dtype, sizes and every bit are equal.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace fsdp
