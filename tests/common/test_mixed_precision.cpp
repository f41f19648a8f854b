#include <gtest/gtest.h>
#include <optim/mixed_precision.h>

#include <stdexcept>
#include <string>

#include "expect_text.h"

namespace fsdp {
namespace {

TEST(MixedPrecision, is_of_fp32_bf16_or_fp16) {
  for (const auto param : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto reduce : {at::kFloat, at::kBFloat16, at::kHalf})
      check_mixed_precision({param, reduce});
  check_mixed_precision({});
}

void expect_refused(const std::string& words, const MixedPrecisionPolicy& policy) {
  const auto error = error_of<std::invalid_argument>([&] { check_mixed_precision(policy); });
  EXPECT_EQ(error.find(words), 0U) << error;
}

TEST(MixedPrecision, refuses_other_dtypes_by_name) {
  expect_refused("param_dtype Double", {at::kDouble, at::kFloat});
  expect_refused("reduce_dtype Int", {at::kHalf, at::kInt});
}

TEST(MixedPrecision, knows_its_bytes) {
  const MixedPrecisionPolicy narrow{at::kBFloat16, at::kHalf}, none;
  EXPECT_EQ(narrow.param_bytes(), 2);
  EXPECT_EQ(narrow.reduce_bytes(), 2);
  EXPECT_TRUE(narrow.rounds_parameters());
  EXPECT_EQ(none.param_bytes(), 4);
  EXPECT_EQ(none.reduce_bytes(), 4);
  EXPECT_FALSE(none.rounds_parameters());
}

}  // namespace
}  // namespace fsdp
