#include <fcntl.h>
#include <unistd.h>

#include <common/temporary_folder.h>

#include <cstdio>

#include "untrained_strategy.h"

namespace fsdp {
namespace {

TEST(TrainingOutput, a_run_reports_unwritable_standard_output_after_it_has_written_its_files) {
  const TemporaryFolder folder;
  TrainConfig config = small_run();
  config.reports.json = folder.path() + "/json";
  std::fflush(stdout);
  const int before = dup(STDOUT_FILENO), full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  testing::internal::CaptureStderr();
  dup2(full, STDOUT_FILENO);
  const int status = run_training(config, with<UntrainedStrategy>(), "fsdp train");
  dup2(before, STDOUT_FILENO);
  close(before);
  close(full);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "fsdp train: rank 0 failed: standard output: No space left on device\n");
  EXPECT_EQ(lines_of(config.reports.json).size(), 5U);
}

}  // namespace
}  // namespace fsdp
