#include <sys/wait.h>
#include <unistd.h>

#include <common/exit_status.h>
#include <common/expect_text.h>
#include <common/fork_process.h>
#include <reference/trained.h>

#include <filesystem>

namespace fsdp {
namespace {

std::string replay(const TrainConfig& config, const std::string& file) {
  testing::internal::CaptureStderr();
  status_of(fork_process([&] {
    setenv("FSDP_REPLAY", file.c_str(), 1);
    testing::internal::CaptureStdout();
    run_training(config, {make_fsdp_strategy, shard_layout, nullptr, construct_on_meta});
    return 1;
  }));
  return testing::internal::GetCapturedStderr();
}

TEST(TrainingReplay, the_replay_of_a_training_makes_the_recorded_calls_with_the_recorded_bits) {
  for (const Arranged& how : std::vector<Arranged>{
           {"single", 2}, {"ddp", 2}, {"fsdp", 1}, {"fsdp", 2}, {"fsdp", 3}, {"fsdp", 4, 2}}) {
    for (const char* backend : {"shm", "gloo"}) {
      const TemporaryFolder folder;
      TrainConfig config = config_of(how, /*parts=*/12, /*steps=*/2);
      config.ranks.comm.backend = backend;
      setenv("FSDP_RECORD", (folder.path() + "/new").c_str(), 1);
      testing::internal::CaptureStderr();
      train(config, folder);
      EXPECT_CONTAINS(testing::internal::GetCapturedStderr(), "new --rank R");
      unsetenv("FSDP_RECORD");
      for (int rank = 0; rank < (how.mode == "single" ? 1 : how.world); ++rank) {
        SCOPED_TRACE(named(how) + " over " + backend + ", rank " + std::to_string(rank));
        const std::string said =
            replay(config, folder.path() + "/new/0/rank-" + std::to_string(rank));
        EXPECT_CONTAINS(said, "it ends well\n");
        EXPECT_LACKS(said, "gives other bits");
      }
    }
  }
}

TEST(TrainingReplay, a_replay_does_not_overwrite_the_hash_file_of_the_recorded_run) {
  const TemporaryFolder folder;
  TrainConfig config = config_of({"fsdp", 2}, /*parts=*/2, /*steps=*/2);
  config.reports.hashes = folder.path() + "/hashes";
  setenv("FSDP_RECORD", (folder.path() + "/new").c_str(), 1);
  testing::internal::CaptureStderr();
  train(config, folder);
  testing::internal::GetCapturedStderr();
  unsetenv("FSDP_RECORD");
  const std::string hashes = config.reports.hashes + "/rank.1";
  const auto before = std::filesystem::last_write_time(hashes);
  EXPECT_CONTAINS(replay(config, folder.path() + "/new/0/rank-1"), "it ends well\n");
  EXPECT_EQ(std::filesystem::last_write_time(hashes), before);
}

}  // namespace
}  // namespace fsdp
