#include <base/torch.h>
#include <testing/multi_rank.h>
#include <testing/provenance.h>

#include "expect_text.h"
#include "failures_of.h"

// Tests failures that name the wrong element of a flat tensor, and the ranks whose gradients are
// missing in it or are counted twice.

using namespace fsdp;

namespace {

// Returns the places of the elements that `rank` owns in a flat tensor of 48 elements, which has
// weight [3, 5], an empty parameter and bias [2]. Each of three ranks owns 16 elements.
Places places_of_rank(int rank) {
  return {{{"weight", {3, 5}, 0}, {"none", {0, 4}, 32}, {"bias", {2}, 32}}, 16, 16L * rank};
}

TEST(Places, the_text_of_a_place_names_the_parameter_and_the_owner_of_the_element) {
  EXPECT_EQ(places_of_rank(0).text(7), "weight[1, 2], which rank 0 owns");
  EXPECT_EQ(places_of_rank(0).text(15), "padding after weight, which rank 0 owns");
  EXPECT_EQ(places_of_rank(1).text(0), "padding after weight, which rank 1 owns");
  EXPECT_EQ(places_of_rank(2).text(1), "bias[1], which rank 2 owns");
  EXPECT_EQ(places_of_rank(2).text(2), "padding after bias, which rank 2 owns");
}

TEST(Places, a_failed_comparison_of_a_shard_names_the_parameter_of_the_first_wrong_element) {
  const RankRun run = run_ranks(3, [](TestRank& rank) {
    at::Tensor shard = at::zeros({16});
    rank.observe("expected", shard);
    if (rank.rank() == 2) shard[1] = 7;
    rank.observe("shard", shard, places_of_rank(rank.rank()));
  });
  EXPECT_CONTAINS(failures_of([&] { expect_on_rank(run, 2, "shard", run.at(2, "expected")); }),
                  "the first at [1] (bias[1], which rank 2 owns): is 7, expected 0");
}

TEST(Provenance, decode_reads_from_a_gradient_which_ranks_are_missing_or_counted_twice) {
  const auto mean_of = [](const std::vector<int>& ranks, int world_size) {
    double sum = 0;
    for (const int rank : ranks)
      sum += static_cast<double>(provenance::gradient(rank, world_size));
    return sum / world_size;
  };
  const auto mean = [](int world_size) {
    return static_cast<double>(provenance::mean(world_size));
  };
  for (int world_size = 1; world_size <= 8; ++world_size)
    EXPECT_EQ(provenance::decode(mean(world_size), world_size), "");
  EXPECT_EQ(provenance::decode(mean(2) * 2, 2),
            "the sum, not the mean: exactly 2 times too large, as with a division by W - 1");
  EXPECT_EQ(provenance::decode(mean(8) * 8, 8), "the sum, not the mean: exactly 8 times too large");
  EXPECT_EQ(provenance::decode(mean(3) / 3, 3), "divided by W twice: exactly 3 times too small");
  EXPECT_EQ(provenance::decode(mean_of({0, 1}, 3), 3), "rank 2's gradient is missing");
  EXPECT_EQ(provenance::decode(mean_of({0, 0, 1, 2}, 3), 3), "rank 0 is counted twice");
  EXPECT_EQ(provenance::decode(mean_of({0, 2, 2, 2}, 3), 3),
            "rank 1's gradient is missing, rank 2 is counted 3 times");
  EXPECT_EQ(provenance::decode(4 * mean_of({2}, 4), 4),
            "rank 0's gradient is missing, rank 1's gradient is missing, rank 3's gradient is "
            "missing, and it is the sum, not the mean");
  // Gradients are computed in fp32, so decode() must also accept a mean that was rounded to a
  // float.
  EXPECT_EQ(provenance::decode(static_cast<float>(mean(7)) * 7 / 6, 7),
            "every rank is counted once, but the sum is divided by 6, not by W = 7");
  EXPECT_CONTAINS(provenance::decode(0, 3), "no rank's gradient is in it: none was collected ");
  EXPECT_EQ(provenance::decode(0.3, 3), "no sum of the ranks' gradients gives it");
  EXPECT_EQ(provenance::decode(NAN, 3), "no sum of the ranks' gradients gives it");
}

TEST(Provenance,
     expect_mean_over_ranks_checks_every_element_of_the_shard_and_that_padding_is_zero) {
  const auto mean = static_cast<double>(provenance::mean(3));
  const auto observe = [](TestRank& rank, const std::string& name, double weight, double padding) {
    const Places places = places_of_rank(rank.rank());
    at::Tensor shard = at::full({16}, padding);
    for (int64_t i = 0; i < 16; ++i) {
      if (places.in_parameter(i)) shard[i] = weight;
    }
    rank.observe(name, shard, places);
  };
  const RankRun run = run_ranks(3, [&](TestRank& rank) {
    observe(rank, "right", mean, 0);
    observe(rank, "sum", 3 * mean, 0);
    observe(rank, "padded", mean, 1);
    rank.observe("nothing", at::zeros({0}), places_of_rank(rank.rank()));
    rank.observe("padding alone", at::zeros({16}), {{}, 16, 0});
  });
  const auto told = [&](const std::string& name) {
    return failures_of([&] { expect_mean_over_ranks(run, name, places_of_rank); });
  };
  EXPECT_EQ(told("right"), "");
  EXPECT_CONTAINS(told("sum"),
                  "rank 0: weight[0, 0], which rank 0 owns: is 93, expected 31: the sum, not the "
                  "mean: exactly 3 times too large");
  EXPECT_CONTAINS(told("padded"),
                  "padding after weight, which rank 1 owns: is 1, expected 0: padding is not zero");
  EXPECT_CONTAINS(told("nothing"), "ranks 0, 1, 2: has 0 elements, expected 16");
  EXPECT_CONTAINS(told("padding alone"),
                  "rank 0: weight[0, 0], which rank 0 owns: is 0, expected 31");
}

}  // namespace
