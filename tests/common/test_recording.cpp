#include <base/whole_file.h>
#include <comm/communicator.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <launch/rank_exit.h>
#include <sys/wait.h>
#include <unistd.h>

#include <common/expect_text.h>
#include <common/set_variables.h>
#include <common/temporary_folder.h>

#include "exit_status.h"
#include "fork_process.h"

namespace fsdp {
namespace {

const char* first = "a";  // name of the unit of the first all-gather in run()
int added = 0;            // run() adds this number to the all-gather input of each rank

class Recording : public testing::Test {
 protected:
  // Records a run in which each of two ranks issues two all-gathers. If `both` is false, only rank
  // 0 issues them, so the run fails.
  void record(bool both) {
    both_ = both;
    setenv("FSDP_RECORD", (folder_.path() + "/new").c_str(), 1);
    EXPECT_EQ(run().ok(), both);
    unsetenv("FSDP_RECORD");
  }

  std::string file(int rank) { return folder_.path() + "/new/0/rank-" + std::to_string(rank); }

  // Replays the recording of `rank` in another process. Returns what it prints.
  std::string replay(int rank) {
    testing::internal::CaptureStderr();
    status_of(fork_process([&] {
      setenv("FSDP_REPLAY", file(rank).c_str(), 1);
      std::fprintf(stderr, "%s", error_of([&] { run(); }).c_str());
      return 1;
    }));
    return testing::internal::GetCapturedStderr();
  }

  TemporaryFolder folder_;

 private:
  LaunchResult run() const {
    return launch(2, [&](const RankContext& context) {
      if (!both_ && context.rank == 1) return 0;
      const auto comm = Communicator::create(context);
      const at::Tensor mine = at::full({4}, context.rank + added, at::kFloat), all = at::empty({8});
      comm->all_gather_into(all, mine, first).wait();
      comm->all_gather_into(all, mine, "b").wait();
      return 0;
    });
  }
  bool both_{};
};

TEST_F(Recording, a_replay_reports_a_collective_or_a_tensor_that_differs_from_the_recorded_one) {
  record(/*both=*/true);
  EXPECT_EQ(replay(1),
            "fsdp replay: rank 1 has made 2 of 2 recorded calls, and given the recorded "
            "bits to 2; it ends well\n");
  added = 1;
  EXPECT_CONTAINS(replay(1), "gives other bits than recorded to all_gather a (8 x float, 32 B)\n");
  first = "c";
  EXPECT_CONTAINS(replay(1),
                  "rank 1 calls all_gather c (8 x float, 32 B), but the recording has "
                  "all_gather a (8 x float, 32 B)\n");
  added = 0;
  first = "a";
}

TEST_F(Recording, the_replay_of_a_failed_rank_ends_at_the_call_that_the_other_rank_never_made) {
  record(/*both=*/false);
  const std::string said = replay(0);
  EXPECT_CONTAINS(said, "rank 0 waits here for all_gather a (8 x float, 32 B), which never came\n");
  EXPECT_CONTAINS(said, "was recorded to its end: it failed: rank 0: all_gather a");
}

TEST_F(Recording, a_truncated_recording_replays_up_to_the_cut) {
  record(/*both=*/true);
  const auto bytes = std::filesystem::file_size(file(0));
  std::filesystem::resize_file(file(0), bytes - 1);
  EXPECT_CONTAINS(replay(0), "it ends well\nfsdp replay: rank 0 was recorded up to here: it");
  std::filesystem::resize_file(file(0), bytes / 2);
  EXPECT_CONTAINS(replay(0), "rank 0 calls all_gather b (8 x float, 32 B); the recording has no");
  std::ofstream(file(1)) << std::string(bytes, 'x');
  EXPECT_CONTAINS(replay(1), "rank-1: not a recording of this build (from byte 0 on)");
}

TEST_F(Recording,
       a_recording_has_the_command_line_working_directory_and_chosen_variables_unchanged) {
  using namespace std::string_literals;
  const SetVariables set({{"FSDP_RECORD_AS", "--gtest_filter='*'"}, {"OMP_X", "$(a)\n;b"}});
  record(/*both=*/true);
  const std::string words = content_of(folder_.path() + "/new/command");
  EXPECT_TRUE(words.starts_with(std::filesystem::current_path().string() + '\0'));
  EXPECT_CONTAINS(words, "\0OMP_X=$(a)\n;b\0"s);
  EXPECT_LACKS(words, "HOME=");
  EXPECT_TRUE(words.ends_with("\0\0--gtest_filter='*'\0"s));
}

TEST_F(Recording, recording_into_an_existing_folder_throws) {
  folder_.write("new/kept", "kept");
  EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { record(/*both=*/true); }),
                  "new is there already");
  unsetenv("FSDP_RECORD");
  EXPECT_EQ(content_of(folder_.path() + "/new/kept"), "kept");
}

}  // namespace
}  // namespace fsdp
