#include <train/checkpoints.h>

#include "trained.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;

TrainConfig resumed(TrainConfig config, const std::string& folder) {
  go_on_from(find_checkpoint(folder), config);
  return config;
}

// Trains all steps in one run, and again in stages of `each` steps, in which each stage resumes
// from the checkpoint of the stage before. Fails unless both end with the same bits.
void expect_undisturbed(const std::vector<Arranged>& stages, int64_t each, int parts,
                        const std::string& format, bool in_fp16 = false) {
  const TemporaryFolder folder;
  const int64_t steps = each * static_cast<int64_t>(stages.size());
  const auto config_of = [&](const Arranged& how, int64_t steps_of_run) {
    TrainConfig config = fsdp::config_of(how, parts, steps_of_run);
    if (!in_fp16) return config;
    config.precision.policy = {at::kHalf, at::kHalf};
    // The loss scale is so large at first that gradients overflow in fp16 and steps are skipped.
    config.precision.loss_scaler = LossScaler(LossScaler::kLargest, 2);
    return config;
  };
  const Json expected = train(config_of(stages[0], steps), folder);
  Json last;
  for (size_t i = 0; i < stages.size(); ++i) {
    SCOPED_TRACE(named(stages[i]) + ", " + format);
    TrainConfig config = config_of(stages[i], each * static_cast<int64_t>(i + 1));
    config.checkpoint.dir = folder.path() + "/saved";
    config.checkpoint.format =
        format == "full" ? CheckpointFormat::full : CheckpointFormat::sharded;
    config.checkpoint.save_every = each;
    if (i > 0) config = resumed(config, config.checkpoint.dir);
    last = train(config, folder);
    EXPECT_EQ(last["live_bytes_mismatches"], 0);
  }
  EXPECT_EQ(last["param_sha256"], expected["param_sha256"]);
  EXPECT_EQ(last["state_sha256"], expected["state_sha256"]);
  EXPECT_EQ(last["first_step"], steps - each);
  EXPECT_EQ(last.value("loss_scaler", Json()), expected.value("loss_scaler", Json()));
}

TEST(Resume, a_resumed_run_ends_with_the_bits_of_an_uninterrupted_run) {
  for (const int ranks : {1, 2, 3, 4})
    for (const std::string format : {"sharded", "full"})
      expect_undisturbed({{"fsdp", ranks}, {"fsdp", ranks}}, 3, ranks, format);
}

TEST(Resume, a_run_resumed_on_other_numbers_of_ranks_ends_with_the_same_bits) {
  expect_undisturbed({{"fsdp", 4}, {"fsdp", 2}, {"fsdp", 1}}, 2, 4, "sharded");
  expect_undisturbed({{"fsdp", 8}, {"fsdp", 4}, {"fsdp", 2}, {"fsdp", 8}}, 1, 8, "sharded");
}

TEST(Resume, a_run_resumed_with_another_strategy_or_mode_ends_with_the_same_bits) {
  expect_undisturbed({{"fsdp", 4}, {"fsdp", 4, 2}, {"fsdp", 4, 1}}, 1, 4, "sharded");
  expect_undisturbed({{"fsdp", 4}, {"ddp", 2}, {"single", 4}}, 2, 4, "full");
  expect_undisturbed({{"single", 2}, {"ddp", 2}, {"fsdp", 2}}, 1, 2, "sharded");
}

TEST(Resume, a_resumed_run_continues_with_the_loss_scale_of_the_checkpoint) {
  expect_undisturbed({{"fsdp", 4}, {"ddp", 2}, {"single", 4}}, 5, 4, "sharded", /*in_fp16=*/true);
}

TEST(Resume, a_run_saves_checkpoints_at_the_interval_and_after_the_last_step) {
  const TemporaryFolder folder;
  TrainConfig config = fsdp::config_of({"fsdp", 2}, 2, 5);
  config.checkpoint.dir = folder.path() + "/saved";
  config.checkpoint.save_every = 2;
  train(config, folder);
  for (int64_t step = 1; step <= 5; ++step) {
    EXPECT_EQ(std::filesystem::exists(config.checkpoint.dir + "/step-00000" + std::to_string(step)),
              step == 2 || step == 4 || step == 5)
        << step;
  }
}

}  // namespace
}  // namespace fsdp
