#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fsdp {

// The order in which parts are added, for example the inputs of all ranks: as a binary tree, which
// is the same over every transport on the CPU. The sum of n parts is the sum of the first m plus
// the sum of the other n - m, where m is the largest power of two below n: (0+1)+2, (0+1)+(2+3),
// ((0+1)+(2+3))+4. So a rank that holds 2^k neighbouring parts, the first at a multiple of 2^k, may
// add them first: the bits of the whole sum stay the same.

// output[0, numel) <- the sum of the parts, which are of `dtype`. The sum is computed in `dtype`,
// or in fp32 if `dtype` is a narrower floating-point type, and is then rounded once to
// `output_dtype`. The output may be one of the parts if it has their dtype.
void sum_as_tree(void* output, at::ScalarType output_dtype, const std::vector<const void*>& parts,
                 int64_t numel, at::ScalarType dtype);

// Returns the sum of CPU tensors of one shape and dtype, in the order of the tree, as a new tensor.
at::Tensor sum_as_tree(const std::vector<at::Tensor>& parts);

}  // namespace fsdp
