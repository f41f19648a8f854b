#include <gtest/gtest.h>
#include <optim/exact_sum.h>

#include <bitset>
#include <cmath>
#include <limits>
#include <vector>

#include "in_a_process.h"

namespace fsdp {
namespace {

constexpr float kHuge = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A sum of squares as a binary integer in units of 2^-298. add() adds bit by bit, in the way that
// textbooks show. value() rounds once, to the nearest double, and a tie to the even one.
class Oracle {
 public:
  explicit Oracle(const at::Tensor& elements) {
    // The square of a float is exact in fp64.
    const at::Tensor squares = elements.flatten().to(at::kDouble).square();
    for (int64_t i = 0; i < squares.numel(); ++i)
      add(squares.data_ptr<double>()[i]);
  }

  double value() const {
    int top = kBits - 1;
    while (top > 52 && !bits_[top])
      --top;
    double value = 0;
    for (int i = top; i > top - 53; --i)
      value = 2 * value + bits_[i];
    const int lowest = top - 52;
    bool above_half = false;
    for (int i = 0; i < lowest - 1; ++i)
      above_half = above_half || bits_[i];
    if (lowest > 0 && bits_[lowest - 1] && (above_half || bits_[lowest])) value += 1;
    return std::ldexp(value, lowest - 298);
  }

 private:
  static constexpr int kBits = 640;

  void add(double square) {
    int exponent{};
    auto mantissa = static_cast<uint64_t>(std::ldexp(std::frexp(square, &exponent), 53));
    for (int at = exponent - 53 + 298; mantissa != 0; ++at, mantissa >>= 1) {
      if ((mantissa & 1) == 0) continue;
      int i = at;
      for (; bits_[i]; ++i)
        bits_.reset(i);
      bits_.set(i);
    }
  }

  std::bitset<kBits> bits_;
};

// Returns finite numbers of every exponent and both signs, denormal ones too.
at::Tensor numbers_of_all_exponents(int64_t numel) {
  const at::Tensor bits = torch::randint(std::numeric_limits<int32_t>::min(),
                                         std::numeric_limits<int32_t>::max(), {numel}, torch::kInt);
  const at::Tensor numbers = bits.view(torch::kFloat);
  return torch::where(numbers.isfinite(), numbers, torch::zeros({}));
}

std::vector<at::Tensor> samples() {
  const at::Tensor all = numbers_of_all_exponents(30'000);
  const at::Tensor below_one = all.masked_select(all.abs() < 1);
  return {torch::zeros({0}), torch::tensor({0.0F, -0.0F}), torch::tensor({kTiny}),
          torch::tensor({-kTiny, kTiny, std::numeric_limits<float>::min()}),
          torch::full({70'000}, kHuge), torch::tensor({kHuge, kTiny}),
          // The mantissa of each of the 300,000 elements has only ones. 64 bits can hold the sum of
          // at most 65,536 such squares.
          torch::full({300'000}, std::nextafter(2.0F, 0.0F)), torch::randn({200'003}) * 1e-3,
          torch::randn({77, 33}).t(), below_one, below_one * 1e-30, all};
}

TEST_IN_A_PROCESS(ExactSum, the_value_of_an_exact_sum_is_the_sum_of_squares_rounded_once) {
  for (const at::Tensor& sample : samples())
    EXPECT_EQ(value_of_sum(sum_of_squares(sample)), Oracle(sample).value()) << sample.sizes();
}

TEST_IN_A_PROCESS(ExactSum, a_sum_halfway_between_two_doubles_is_rounded_to_the_even_one) {
  const auto value = [](std::vector<float> elements) {
    return value_of_sum(sum_of_squares(torch::tensor(elements)));
  };
  const float small = std::ldexp(1.0F, -27);  // small^2 + small^2 is half of the last bit of 1
  const double above = std::nextafter(1.0, 2.0);
  EXPECT_EQ(value({1, small, small}), 1.0);
  EXPECT_EQ(value({1, small, small, kTiny}), above);
  EXPECT_EQ(value({1, small, small, small, small, small, small}), std::nextafter(above, 2.0));
}

// Returns 2^exponent as an exact sum.
at::Tensor power_of_two(int exponent) {
  return exact_sum_of(1, exponent);
}

// The highest bit of the sum is 2^top, and a double keeps the 52 bits below it. The lower bits
// decide the rounding. Here they are exactly half of the last bit that is kept, or this half and
// one lower bit, or a little less than half. The test tries a highest bit at many positions within
// a digit of 32 bits, and the one lower bit at every position.
TEST_IN_A_PROCESS(ExactSum, every_bit_of_an_exact_sum_counts_when_it_is_rounded_to_a_double) {
  constexpr int kLowest = -298, kFractionBits = 52;
  for (const int top : {-120, -30, -1, 0, 1, 2, 31, 32, 33, 40, 52, 63, 64, 100, 200}) {
    const double one = std::ldexp(1.0, top), next = std::nextafter(one, 2 * one);
    const double second = std::nextafter(next, 2 * one);
    const at::Tensor even = power_of_two(top);
    const at::Tensor odd = even + power_of_two(top - kFractionBits);
    const int half_bit = top - kFractionBits - 1;
    const at::Tensor half = power_of_two(half_bit);
    EXPECT_EQ(value_of_sum(even + half), one) << "2^" << top << " and a half";
    EXPECT_EQ(value_of_sum(odd + half), second) << "the one after 2^" << top << " and a half";
    for (int lower = kLowest; lower < half_bit; ++lower) {
      const at::Tensor little = power_of_two(lower);
      ASSERT_EQ(value_of_sum(even + half + little), next) << "2^" << top << ", and 2^" << lower;
      ASSERT_EQ(value_of_sum(odd + little), next) << "after 2^" << top << ", and 2^" << lower;
    }
    // In `below`, all bits below the half of the last kept bit are set. This is the largest number
    // that is rounded down.
    at::Tensor below = even.clone();
    for (int bit = std::max(kLowest, half_bit - 200); bit < half_bit; ++bit)
      below += power_of_two(bit);
    EXPECT_EQ(value_of_sum(below), one) << "2^" << top << " and less than a half";
  }
}

TEST_IN_A_PROCESS(ExactSum, adding_a_million_exact_sums_gives_an_exact_sum) {
  at::Tensor sum = sum_of_squares(numbers_of_all_exponents(100'000));
  const double value = value_of_sum(sum);
  EXPECT_LT(sum.max().item<double>(), std::ldexp(1.0, 32));
  for (int i = 0; i < 20; ++i)
    sum = sum + sum;
  EXPECT_EQ(value_of_sum(sum), std::ldexp(value, 20));
  // kHuge^2 is so small beside `sum` that a double cannot hold their sum exactly. So the value
  // depends on the rounding.
  sum += sum_of_squares(torch::tensor({kHuge}));
  const double squares = std::ldexp(value, 20) + double{kHuge} * kHuge;
  EXPECT_EQ(value_of_sum(sum), squares);
}

TEST_IN_A_PROCESS(ExactSum, an_infinite_or_nan_element_makes_the_value_infinite_or_nan) {
  const at::Tensor numbers = torch::ones({100'000});
  const auto with = [&](int64_t i, float value) {
    const at::Tensor changed = numbers.clone();
    changed[i] = value;
    return sum_of_squares(changed);
  };
  EXPECT_EQ(value_of_sum(with(99'999, kInfinity)), kInfinity);
  EXPECT_EQ(value_of_sum(with(0, -kInfinity)), kInfinity);
  EXPECT_TRUE(std::isnan(value_of_sum(with(0, kNaN))));
  EXPECT_TRUE(std::isnan(value_of_sum(with(70'000, -kNaN))));
  EXPECT_EQ(value_of_sum(with(1, 1) + with(2, kInfinity)), kInfinity);
  EXPECT_TRUE(std::isnan(value_of_sum(with(1, kInfinity) + with(2, kNaN))));
}

TEST_IN_A_PROCESS(ExactSum,
                  the_algorithm_for_gpus_gives_the_same_exact_sum_as_the_algorithm_for_cpus) {
  for (const at::Tensor& sample : samples())
    EXPECT_TRUE(sum_of_squares_on_gpu(sample).equal(sum_of_squares(sample))) << sample.sizes();
  for (const float value : {kInfinity, -kInfinity, kNaN}) {
    const at::Tensor one = torch::tensor({1.0F, value});
    EXPECT_TRUE(sum_of_squares_on_gpu(one).allclose(sum_of_squares(one), 0, 0, true)) << value;
  }
}

}  // namespace
}  // namespace fsdp
