#include <state/checkpoint.h>

#include <common/temporary_folder.h>

#include "untrained_strategy.h"

namespace fsdp {
namespace {

// The folder contains an unfinished save of step 2 before the run begins.
TEST(RunCheckpoint, a_run_removes_the_folder_that_an_unfinished_save_of_an_earlier_run_left) {
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
