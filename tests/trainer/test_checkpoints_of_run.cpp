#include <state/checkpoint.h>

#include <common/temporary_folder.h>

#include "untrained_strategy.h"

namespace fsdp {
namespace {

// A save of step 2 that was broken off.
TEST(CheckpointsOfRun, lose_what_a_broken_save_has_left_when_the_run_begins) {
  const TemporaryFolder folder;
  folder.write("step-000002.part/rank-0000-of-0002.safetensors", "half");
  TrainConfig config = small_run();
  config.checkpoint.dir = folder.path();
  config.checkpoint.save_every = 4;
  EXPECT_EQ(train(with<UntrainedStrategy>(), config).errors, "");
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/step-000002.part"));
  EXPECT_EQ(latest_step(folder.path()), 4);
}

}  // namespace
}  // namespace fsdp
