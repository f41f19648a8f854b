#include <base/whole_file.h>
#include <state/checkpoint.h>
#include <train/checkpoints.h>

#include <common/temporary_folder.h>

#include "untrained_strategy.h"

namespace fsdp {
namespace {

TEST(RunOptionFile, a_resumed_run_keeps_the_option_file_of_the_first_run) {
  const TemporaryFolder folder;
  TrainConfig config = small_run();
  config.checkpoint.dir = folder.path();
  config.checkpoint.save_every = 4;
  config.reports.saved_options = "steps = 4\n";
  EXPECT_EQ(train(with<UntrainedStrategy>(), config).errors, "");
  go_on_from(find_checkpoint(folder.path()), config);
  config.training.steps = 8;
  config.reports.saved_options = "steps = 8\n";
  EXPECT_EQ(train(with<UntrainedStrategy>(), config).errors, "");
  EXPECT_EQ(content_of(folder.path() + "/run.toml"), "steps = 4\n");
  EXPECT_EQ(content_of(folder.path() + "/run-from-000004.toml"), "steps = 8\n");
}

}  // namespace
}  // namespace fsdp
