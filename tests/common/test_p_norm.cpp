#include <gtest/gtest.h>
#include <optim/p_norm.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "expect_text.h"
#include "in_a_process.h"

namespace fsdp {
namespace {

constexpr float kHuge = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const std::vector<double> kTypes{0.5, 1, 2, 2.5, 3, kInfinity};

double norm_of(const at::Tensor& elements, double norm_type) {
  return p_norm({elements}, norm_type);
}

double sum_of(const at::Tensor& elements, double norm_type, double largest) {
  return value_of_sum(sum_of_powers(elements, norm_type, largest));
}

std::vector<at::Tensor> samples() {
  return {torch::randn({20'003}) * 1e-3,
          torch::randn({77, 33}).t(),
          torch::zeros({0}),
          torch::tensor({0.0F, -0.0F}),
          torch::tensor({-3.0F, 2.0F}),
          torch::exp(torch::randn({1000}) * 20).clamp(0, kHuge)};
}

TEST_IN_A_PROCESS(PNorm, p_norm_equals_torchs_vector_norm) {
  for (const at::Tensor& sample : samples()) {
    for (const double type : kTypes) {
      const at::Tensor expected = sample.numel() == 0
                                      ? torch::zeros({}, torch::kDouble)
                                      : torch::linalg_vector_norm(sample.to(torch::kDouble), type);
      const auto value = expected.item<double>();
      EXPECT_NEAR(norm_of(sample, type), value, 1e-12 * value) << sample.sizes() << ", " << type;
    }
  }
}

TEST_IN_A_PROCESS(PNorm, elements_in_16_bits_have_the_norm_of_the_same_numbers_in_fp32) {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    const at::Tensor sample = torch::randn({1003}).to(dtype), wide = sample.to(torch::kFloat);
    for (const double type : kTypes)
      EXPECT_EQ(norm_of(sample, type), norm_of(wide, type)) << sample.dtype() << ", " << type;
    EXPECT_TRUE(torch::equal(sum_of_squares_on_gpu(sample), sum_of_squares(wide)));
  }
}

TEST_IN_A_PROCESS(PNorm, sum_of_powers_rounds_each_power_down_to_a_multiple_of_2_to_the_minus_62) {
  EXPECT_EQ(sum_of(torch::tensor({-2.0F, 1.0F, 4.0F}), 3, 4), 1 + 0.125 + 1.0 / 64);
  const float one_unit = std::ldexp(1.0F, -31);  // one_unit^2 is 2^-62
  const at::Tensor units = torch::full({4096}, one_unit);
  const at::Tensor less = torch::full({4096}, std::nextafter(one_unit, 0.0F));
  const at::Tensor one = torch::ones({1});
  EXPECT_EQ(sum_of(torch::cat({one, units}), 2, 1), 1 + std::ldexp(1.0, -50));
  EXPECT_EQ(sum_of(torch::cat({one, less}), 2, 1), 1);
}

TEST_IN_A_PROCESS(PNorm, p_norm_of_huge_elements_does_not_overflow) {
  for (const float element : {kHuge, -kHuge, kTiny}) {
    const at::Tensor elements = torch::full({70'000}, element);
    for (const double type : {0.5, 1.0, 100.0, 1e300})
      EXPECT_EQ(norm_of(elements, type), std::abs(element) * std::pow(70'000, 1 / type)) << type;
    EXPECT_EQ(norm_of(elements, kInfinity), std::abs(element));
  }
}

TEST_IN_A_PROCESS(PNorm, a_nonfinite_element_makes_the_norm_nonfinite) {
  const at::Tensor numbers = torch::ones({1000});
  const auto with = [&](double value) {
    const at::Tensor changed = numbers.clone();
    changed[999] = value;
    return changed;
  };
  for (const double type : kTypes) {
    EXPECT_EQ(norm_of(with(kInfinity), type), kInfinity) << type;
    EXPECT_EQ(norm_of(with(-kInfinity), type), kInfinity) << type;
    EXPECT_TRUE(std::isnan(norm_of(with(kNaN), type))) << type;
    EXPECT_TRUE(std::isnan(p_norm({numbers, with(kInfinity), with(kNaN)}, type))) << type;
  }
}

TEST(PNorm, check_norm_type_throws_for_a_norm_type_that_is_not_above_zero) {
  for (const double type : {1e-300, 0.5, 2.0, kInfinity})
    EXPECT_NO_THROW(check_norm_type(type)) << type;
  for (const double type : {0.0, -0.0, -1.0, -kInfinity, kNaN})
    EXPECT_THROW(check_norm_type(type), std::invalid_argument) << type;
  EXPECT_EQ(error_of([] { check_norm_type(-1); }), "norm_type must be above 0, not -1.000000");
}

}  // namespace
}  // namespace fsdp
