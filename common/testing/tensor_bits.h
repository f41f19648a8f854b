#pragma once

#include <base/torch.h>

#include <cstdint>
#include <vector>

// Reads tensors that graded code returns, without calling an operator: graded code may have
// registered fallback kernels for operators (task 1 asks for one), and may return tensors of a
// class of its own. All functions throw std::logic_error if operators of this thread, or of a
// tensor, would run a fallback first.
namespace fsdp {

// Throws std::logic_error if the operators that this thread calls would run a fallback kernel
// before their own kernels.
void check_dispatch();

// Returns the bytes of all elements in row-major order. The tensor must be dense and on the CPU.
std::vector<uint8_t> bytes_of(const at::Tensor& tensor);

// Returns all elements in row-major order. Throws std::logic_error if they are not of type T.
template <typename T>
std::vector<T> values_of(const at::Tensor& tensor);

// Returns whether dtype, sizes and every bit of the two tensors are equal.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace fsdp
