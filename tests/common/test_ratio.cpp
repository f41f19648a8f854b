#include <gtest/gtest.h>
#include <testing/observed_tensor.h>
#include <testing/ratio.h>

#include "expect_text.h"

using namespace fsdp;

namespace {

TEST(Ratio, ratio_in_words_describes_a_ratio_that_all_elements_have_as_a_fraction_or_a_number) {
  EXPECT_EQ(ratio_in_words({3, 0, 1.5}, {2, 0, 1}),
            "every element is exactly 3/2 times the expected one");
  EXPECT_EQ(ratio_in_words({0.1 * 4 / 3, 0.7 * 4 / 3}, {0.1F, 0.7F}),
            "every element is about 4/3 times the expected one");
  EXPECT_EQ(ratio_in_words({3.14159, 2 * 3.14159}, {1, 2}),
            "every element is about 3.14159 times the expected one");
  EXPECT_CONTAINS(ratio_in_words({0, 0}, {1, 2}),
                  "every element is 0: the operation that fills in the values ");
  EXPECT_EQ(ratio_in_words({0}, {1}), "it is 0");
  EXPECT_EQ(ratio_in_words({1, 2}, {1, 3}), "");
  EXPECT_EQ(ratio_in_words({1, 2}, {0, 3}), "");
}

TEST(Ratio, ratio_in_words_calls_a_difference_in_the_last_bits_rounding) {
  EXPECT_CONTAINS(ratio_in_words({0.1F * (1 / 3.F), 5 * (1 / 3.F)}, {0.1F / 3, 5 / 3.F}),
                  "every element is right except for rounding");
  EXPECT_CONTAINS(difference(3.0000001, 3.0), "it is right except for rounding");
  EXPECT_EQ(difference(6.0, 3.0), "is 6.0, expected 3.0; it is exactly 2 times the expected one");
}

}  // namespace
