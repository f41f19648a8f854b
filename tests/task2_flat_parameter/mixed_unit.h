#pragma once

#include <string>
#include <vector>

#include "small_unit.h"

// This file has a unit with mixed precision, the policies that the tests set for it, and its
// gradients.
namespace fsdp {

inline std::shared_ptr<FlatParameter> make_mixed_unit(
    TestRank& rank, const MixedPrecisionPolicy& policy,
    const std::vector<std::vector<int64_t>>& shapes = kShapes) {
  auto unit = make_unit(rank, shapes);
  unit->set_mixed_precision(policy);
  return unit;
}

inline constexpr MixedPrecisionPolicy kBf16{at::kBFloat16, at::kBFloat16};
inline constexpr MixedPrecisionPolicy kFp16{at::kHalf, at::kHalf};
inline const std::vector<MixedPrecisionPolicy> kPolicies{kBf16,
                                                         kFp16,
                                                         {at::kHalf, at::kBFloat16},
                                                         {at::kBFloat16, at::kFloat},
                                                         {at::kFloat, at::kBFloat16},
                                                         {}};

// Returns the dtypes of `policy` as a text: "; param_dtype Half, reduce_dtype BFloat16". Tests
// append it to the names of observations.
inline std::string with(const MixedPrecisionPolicy& policy) {
  return std::string("; param_dtype ") + c10::toString(policy.param_dtype) + ", reduce_dtype " +
         c10::toString(policy.reduce_dtype);
}

// Sets the gradients of the unit's parameters, in the dtype of each parameter as autograd does, and
// marks them ready.
inline void collect_gradients(FlatParameter& unit, const std::vector<at::Tensor>& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& parameter = unit.parameters()[i].tensor;
    parameter.mutable_grad() = gradients[i].to(parameter.scalar_type());
    unit.mark_gradient_ready(i);
  }
}

inline std::vector<at::Tensor> equal_gradients(double value) {
  std::vector<at::Tensor> gradients;
  for (const auto& shape : kShapes)
    gradients.push_back(at::full(shape, value));
  return gradients;
}

inline std::string typed_calls(Communicator& comm) {
  std::string text;
  for (const Call& call : comm.take_log()) {
    text += call.name() + " " + c10::toString(call.dtype) + " " + std::to_string(call.bytes) + "; ";
  }
  return text;
}

}  // namespace fsdp
