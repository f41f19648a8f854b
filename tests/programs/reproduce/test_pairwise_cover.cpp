#include <gtest/gtest.h>
#include <reproduce/pairwise_cover.h>

#include <algorithm>

namespace fsdp {
namespace {

TEST(PairwiseCover, a_pairwise_cover_contains_every_pair_of_values_of_any_two_factors) {
  const std::vector<size_t> counts{4, 2, 3, 1, 5};
  const auto rows = pairwise_cover(counts);
  for (size_t i = 0; i < counts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      for (size_t a = 0; a < counts[i]; ++a) {
        for (size_t b = 0; b < counts[j]; ++b) {
          const bool met = std::any_of(rows.begin(), rows.end(),
                                       [&](const auto& row) { return row[i] == a && row[j] == b; });
          EXPECT_TRUE(met) << "factors " << j << " and " << i << ", values " << b << " and " << a;
        }
      }
    }
  }
  EXPECT_LE(rows.size(), 30U);
}

}  // namespace
}  // namespace fsdp
