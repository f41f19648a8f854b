#include <optim/mixed_precision.h>

#include <stdexcept>
#include <string>

namespace fsdp {

const char* dtype_name(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bf16" : dtype == at::kHalf ? "fp16" : "fp32";
}

void check_mixed_precision(const MixedPrecisionPolicy& policy) {
  for (const auto& [name, dtype] :
       {std::pair("param_dtype", policy.param_dtype), {"reduce_dtype", policy.reduce_dtype}}) {
    if (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf) continue;
    throw std::invalid_argument(std::string(name) + " " + c10::toString(dtype) +
                                ": takes Float, BFloat16 or Half");
  }
}

}  // namespace fsdp
