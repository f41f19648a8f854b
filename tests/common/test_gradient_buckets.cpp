#include <gtest/gtest.h>
#include <optim/gradient_buckets.h>

namespace fsdp {
namespace {

using Numels = std::vector<int64_t>;

// A backward pass computes gradients from the last parameter to the first, so gradient_buckets()
// fills the buckets in this order.
TEST(GradientBuckets, gradient_buckets_are_filled_from_the_last_parameter_to_the_first) {
  const auto buckets = gradient_buckets({32, 16, 48, 16}, {4 * 64, 4 * 48});
  EXPECT_EQ(buckets.numels, (Numels{64, 48}));
  ASSERT_EQ(buckets.places.size(), 4U);
  const std::vector<size_t> bucket{1, 1, 0, 0};
  const Numels offset{16, 0, 16, 0};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(buckets.places[i].bucket, bucket[i]) << i;
    EXPECT_EQ(buckets.places[i].offset, offset[i]) << i;
  }
}

TEST(GradientBuckets,
     a_gradient_has_its_own_bucket_if_it_exceeds_a_bucket_or_if_no_bucket_size_is_set) {
  EXPECT_EQ(gradient_buckets({16, 160, 16}, {4 * 32, 4 * 32}).numels, (Numels{16, 160, 16}));
  EXPECT_EQ(gradient_buckets({16, 32, 48}, kBucketOfEach).numels, (Numels{48, 32, 16}));
  EXPECT_TRUE(gradient_buckets({}, kBucketOfEach).numels.empty());
}

}  // namespace
}  // namespace fsdp
