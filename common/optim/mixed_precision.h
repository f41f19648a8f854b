#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace fsdp {

// The dtypes of FSDP2's MixedPrecisionPolicy: fp32, bf16 or fp16. Shards, gradients after their
// reduction, and all that the optimizer does stay fp32.
struct MixedPrecisionPolicy {
  // The dtype of the gathered parameters, and so of forward and backward.
  at::ScalarType param_dtype{at::kFloat};
  // The dtype in which ranks send gradients. A reduction adds the gradients in fp32.
  at::ScalarType reduce_dtype{at::kFloat};

  // Returns the dtype in which the gradients of several backward passes are added before they are
  // reduced: the wider one of param_dtype and reduce_dtype; fp32 for bf16 together with fp16.
  // (FSDP2 uses reduce_dtype, even if that is narrower.)
  at::ScalarType accumulate_dtype() const {
    return param_dtype == reduce_dtype ? param_dtype : at::kFloat;
  }

  bool rounds_parameters() const { return param_dtype != at::kFloat; }
  bool operator==(const MixedPrecisionPolicy&) const = default;
  int64_t param_bytes() const { return static_cast<int64_t>(c10::elementSize(param_dtype)); }
  int64_t reduce_bytes() const { return static_cast<int64_t>(c10::elementSize(reduce_dtype)); }
};

// Returns "fp32", "bf16" or "fp16".
const char* dtype_name(at::ScalarType dtype);

// Throws std::invalid_argument, which names the dtype, unless param_dtype and reduce_dtype are
// fp32, bf16 or fp16.
void check_mixed_precision(const MixedPrecisionPolicy& policy);

}  // namespace fsdp
