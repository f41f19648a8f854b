#include <gtest/gtest.h>

#include "parsed.h"

namespace fsdp {
namespace {

std::vector<double> rates(const std::vector<std::string>& options) {
  std::vector<std::string> all{"--steps", "5", "--lr", "8"};
  all.insert(all.end(), options.begin(), options.end());
  const TrainConfig config = parsed(all);
  std::vector<double> rates;
  for (int64_t step = 0; step < config.training.steps; ++step)
    rates.push_back(config.lr_of(step));
  return rates;
}

TEST(LearningRate, the_learning_rate_grows_during_the_warmup_and_falls_until_the_last_step) {
  using Rates = std::vector<double>;
  EXPECT_EQ(rates({}), Rates(5, 8));
  EXPECT_EQ(rates({"--warmup", "3"}), Rates({2, 4, 6, 8, 8}));
  EXPECT_EQ(rates({"--lr-decay", "linear"}), Rates({8, 6, 4, 2, 0}));
  EXPECT_EQ(rates({"--lr-decay", "linear", "--min-lr", "4"}), Rates({8, 7, 6, 5, 4}));
  const Rates cosine = rates({"--warmup", "1", "--lr-decay", "cosine", "--min-lr", "2"});
  for (const auto& [step, rate] : {std::pair(0, 4.0), {1, 8.0}, {2, 6.5}, {3, 3.5}, {4, 2.0}})
    EXPECT_NEAR(cosine[static_cast<size_t>(step)], rate, 1e-12) << step;
  EXPECT_EQ(rates({"--warmup", "9", "--lr-decay", "cosine"}).back(), 4);
  EXPECT_EQ(refused({"--min-lr", "0.1"}), "--min-lr: needs --lr-decay, and must be at most --lr");
}

TEST(LearningRate, a_run_that_ends_within_its_warmup_reports_that_it_does_not_reach_lr) {
  for (const auto& [warmup, told] :
       {std::pair("4", ""),
        {"9",
         "fsdp train: --warmup 9: --lr 8 is not reached in 5 steps; the last one has the rate "
         "4\n"}}) {
    testing::internal::CaptureStderr();
    rates({"--warmup", warmup});
    EXPECT_EQ(testing::internal::GetCapturedStderr(), told);
  }
}

}  // namespace
}  // namespace fsdp
