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

TEST(LearningRate, grows_over_the_warm_up_and_falls_to_the_last_step) {
  using Rates = std::vector<double>;
  EXPECT_EQ(rates({}), Rates(5, 8));
  EXPECT_EQ(rates({"--warmup", "3"}), Rates({2, 4, 6, 8, 8}));
  EXPECT_EQ(rates({"--lr-decay", "linear"}), Rates({8, 6, 4, 2, 0}));
  EXPECT_EQ(rates({"--lr-decay", "linear", "--min-lr", "4"}), Rates({8, 7, 6, 5, 4}));
  const Rates cosine = rates({"--warmup", "1", "--lr-decay", "cosine", "--min-lr", "2"});
  for (const auto& [step, rate] : {std::pair(0, 4.0), {1, 8.0}, {2, 6.5}, {3, 3.5}, {4, 2.0}})
    EXPECT_NEAR(cosine[static_cast<size_t>(step)], rate, 1e-12) << step;
  EXPECT_EQ(rates({"--warmup", "9", "--lr-decay", "cosine"}).back(), 4);
  EXPECT_EQ(refused({"--min-lr", "0.1"}),
            "--min-lr: needs --lr-decay, and at most the rate of --lr");
}

TEST(LearningRate, that_the_warm_up_does_not_reach_is_pointed_out) {
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

TEST(WeightDecay, usual_spares_norms_and_biases) {
  const TrainConfig config = parsed({"--no-decay", "usual"});
  for (const char* name : {"h.0.ln_1.weight", "ln_f.bias", "h.0.attn.c_attn.bias",
                           "ln_final.weight", "layers.3.ln2.weight"})
    EXPECT_EQ(group_of(name, config.optimizer.parameter_groups()), 0) << name;
  for (const char* name : {"wte.weight", "h.0.mlp.c_fc.weight", "layers.0.ffn.w1.weight"})
    EXPECT_EQ(group_of(name, config.optimizer.parameter_groups()), 1) << name;
}

TEST(OptionFile, that_a_run_has_given_repeats_the_run) {
  const std::vector<std::string> options{
      "--mode",  "fsdp", "--world",    "2",    "--steps",  "7",
      "--limit", "all",  "--prefetch", "on",   "--link",   "9us,2GB/s",
      "--lr",    "0.25", "--no-decay", "a|b$", "--poison", "on"};
  const TrainConfig config = parsed(options);
  const TemporaryFolder folder;
  const auto file = folder.write("run.toml", config.reports.given);
  const TrainConfig same = parsed({"--config", file});
  EXPECT_EQ(same.reports.given, config.reports.given);
  EXPECT_EQ(same.sharding.limit, kAllUnits);
  EXPECT_EQ(same.optimizer.lr, 0.25);
  EXPECT_EQ(same.optimizer.no_decay, "a|b$");
  EXPECT_TRUE(same.debug.poison);
  EXPECT_EQ(parsed({"--config", file, "--steps", "9"}).training.steps, 9)
      << "the command line counts";
}

}  // namespace
}  // namespace fsdp
