#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace fsdp {

// output[0, numel) <- parts[0] + parts[1] + ..., added in this order; each sum is rounded to
// `dtype`. The output may be one of the parts.
void sum_in_rank_order(void* output, const std::vector<const void*>& parts, int64_t numel,
                       at::ScalarType dtype);

}  // namespace fsdp
