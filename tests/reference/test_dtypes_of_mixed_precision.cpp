#include <gtest/gtest.h>
#include <optim/mixed_precision.h>

#include <common/expect_text.h>

namespace fsdp {
namespace {

TEST(DtypesOfMixedPrecision, mixed_precision_refuses_dtypes_other_than_fp32_bf16_and_fp16) {
  const auto refusal = [](const MixedPrecisionPolicy& policy) {
    return error_of<std::invalid_argument>([&] { check_mixed_precision(policy); });
  };
  EXPECT_EQ(refusal({at::kDouble, at::kFloat}),
            "param_dtype Double: takes Float, BFloat16 or Half");
  EXPECT_EQ(refusal({at::kHalf, at::kInt}), "reduce_dtype Int: takes Float, BFloat16 or Half");
}

}  // namespace
}  // namespace fsdp
