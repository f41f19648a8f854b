#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace fsdp {

// The dtypes of FSDP2's MixedPrecisionPolicy: fp32, bf16 or fp16. Shards, gradients after their
// reduction, and all that the optimizer does stay fp32.
struct MixedPrecisionPolicy {
  at::ScalarType param_dtype{at::kFloat};   // that parameters are gathered in, and compute in
  at::ScalarType reduce_dtype{at::kFloat};  // that gradients are sent in; they are added in fp32

  bool rounds_parameters() const { return param_dtype != at::kFloat; }
  bool operator==(const MixedPrecisionPolicy&) const = default;
  int64_t param_bytes() const { return static_cast<int64_t>(c10::elementSize(param_dtype)); }
  int64_t reduce_bytes() const { return static_cast<int64_t>(c10::elementSize(reduce_dtype)); }
};

// "fp32", "bf16" or "fp16"
const char* dtype_name(at::ScalarType dtype);

// Throws std::invalid_argument naming the dtype if one is none of the three.
void check_mixed_precision(const MixedPrecisionPolicy& policy);

}  // namespace fsdp
