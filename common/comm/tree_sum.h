#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fsdp {

// The order in which parts are added, in every transport and every mode: as a binary tree. The sum
// of n parts is the sum of the first m plus the sum of the others, where m is the largest power of
// two below n: (0+1)+2, (0+1)+(2+3), ((0+1)+(2+3))+4. So whoever holds 2^k neighbours that begin at
// a multiple of 2^k may add them first: the bits of the whole sum stay the same.

// output[0, numel) <- the sum of the parts. The parts are of `dtype`. Their sum is taken in
// `dtype`, or in fp32 if `dtype` is narrower, and is then rounded once to `output_dtype`. The
// output may be one of the parts, if it is of their dtype.
void sum_as_tree(void* output, at::ScalarType output_dtype, const std::vector<const void*>& parts,
                 int64_t numel, at::ScalarType dtype);

// The same of tensors of one shape and dtype, on the CPU, as a new tensor.
at::Tensor sum_as_tree(const std::vector<at::Tensor>& parts);

}  // namespace fsdp
