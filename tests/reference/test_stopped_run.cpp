#include <train/checkpoints.h>

#include <memory>

#include "trained.h"

namespace fsdp {
namespace {

TrainConfig falling_rate(const Arranged& how) {
  TrainConfig config = config_of(how, 2, 4);
  config.optimizer.lr_decay = LrDecay::linear;
  config.optimizer.lr_factor = std::make_shared<double>(1);
  return config;
}

TEST(StoppedRun, a_run_with_stop_after_saves_a_checkpoint_and_continues_with_the_same_bits) {
  const TemporaryFolder folder;
  const nlohmann::json whole = train(falling_rate({"single", 2}), folder);
  TrainConfig config = falling_rate({"fsdp", 2});
  config.checkpoint.dir = folder.path() + "/saved";
  config.checkpoint.save_every = 100;
  config.training.stop_after = 3;
  // The run writes a line for each of three steps, and a last line about the whole run.
  EXPECT_EQ(trained(config, folder).size(), 4U);
  config.training.stop_after = 0;
  config.checkpoint.resume = config.checkpoint.dir;
  go_on_from(find_checkpoint(config.checkpoint.dir), config);
  EXPECT_EQ(config.checkpoint.first_step, 3);
  const nlohmann::json continued = train(config, folder);
  EXPECT_EQ(continued["param_sha256"], whole["param_sha256"]);
  EXPECT_EQ(continued["state_sha256"], whole["state_sha256"]);
}

}  // namespace
}  // namespace fsdp
