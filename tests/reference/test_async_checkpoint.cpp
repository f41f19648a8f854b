#include <state/checkpoint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <train/checkpoints.h>

#include <csignal>
#include <random>

#include <common/files_below.h>
#include <common/files_in.h>
#include <common/fork_process.h>
#include "trained.h"

namespace fsdp {
namespace {

TrainConfig saving_run(const Arranged& how, int64_t steps, const std::string& dir) {
  TrainConfig config = config_of(how, how.world, steps);
  config.checkpoint.dir = dir;
  return config;
}

// With a save after each step, each save begins while the one before may still be written.
TEST(AsyncCheckpoint, a_run_with_async_saves_leaves_the_same_files_as_a_run_with_blocking_saves) {
  for (const Arranged& how : std::vector<Arranged>{{"single", 1}, {"ddp", 2}, {"fsdp", 4}}) {
    for (const auto format : {CheckpointFormat::sharded, CheckpointFormat::full}) {
      for (const int64_t every : {1, 2}) {
        SCOPED_TRACE(named(how));
        const TemporaryFolder folder;
        const auto saved = [&](bool async) {
          TrainConfig config = saving_run(how, 5, folder.path() + (async ? "/async" : "/plain"));
          config.checkpoint.format = format;
          config.checkpoint.save_every = every;
          config.checkpoint.keep = 3;
          config.checkpoint.async = async;
          EXPECT_EQ(train(config, folder)["live_bytes_mismatches"], 0);
          return files_below(config.checkpoint.dir);
        };
        const auto plain = saved(false);
        EXPECT_EQ(saved(true), plain);
      }
    }
  }
}

// Kills the process and the ranks that it has started. Returns when all have ended.
void kill_run(pid_t process) {
  kill(process, SIGKILL);
  while (waitpid(-1, nullptr, 0) > 0) {
  }
}

TEST(AsyncCheckpoint, a_run_killed_at_random_moments_resumes_to_the_bits_of_an_undisturbed_run) {
  constexpr int kKills = 4;
  constexpr int64_t kSteps = 24;
  // If a process is killed, its ranks become children of this process, which can then wait for
  // them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const TemporaryFolder folder;
  TrainConfig config = saving_run({"fsdp", 2}, kSteps, folder.path() + "/saved");
  config.checkpoint.keep = 2;
  config.checkpoint.async = true;
  const auto continue_run = [&] {
    if (latest_step(config.checkpoint.dir))
      go_on_from(find_checkpoint(config.checkpoint.dir), config);
    return trained(config, folder).back();
  };
  std::mt19937 random(1);  // NOLINT: every run of the test draws the same numbers
  for (int i = 0; i < kKills; ++i) {
    const int64_t before = latest_step(config.checkpoint.dir).value_or(0);
    const pid_t child = fork_process([&] {
      continue_run();
      return 0;
    });
    // The child saves a checkpoint. Then the test looks into the folder a random number of times,
    // so that it kills the run at a random moment.
    while (latest_step(config.checkpoint.dir).value_or(0) == before)
      ASSERT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "the run ended before it was killed";
    for (auto looks = random() % 300; looks > 0; --looks)
      latest_step(config.checkpoint.dir);
    kill_run(child);
    if (latest_step(config.checkpoint.dir) == kSteps) break;
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  // The killed runs may already have made all kSteps steps. So the last run makes one step more.
  config.training.steps = kSteps + 1;
  const auto last = continue_run();
  TrainConfig undisturbed = config_of({"fsdp", 2}, 2, kSteps + 1);
  const auto expected = train(undisturbed, folder);
  EXPECT_EQ(last["param_sha256"], expected["param_sha256"]);
  EXPECT_EQ(last["state_sha256"], expected["state_sha256"]);
  EXPECT_EQ(files_in(config.checkpoint.dir), 2) << "no unfinished checkpoint may be left";
}

}  // namespace
}  // namespace fsdp
