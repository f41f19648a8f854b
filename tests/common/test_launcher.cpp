#include <gtest/gtest.h>
#include <hosts/start.h>
#include <launch/launcher.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <set>
#include <stdexcept>
#include <thread>

#include "exit_status.h"
#include "expect_text.h"
#include "fork_process.h"
#include "shared_words.h"

namespace fsdp {
namespace {

// Blocks a rank until a signal ends it. If none does, an alarm ends the rank after 10 s, and the
// test fails.
[[noreturn]] void wait_for_the_alarm() {
  alarm(10);
  for (;;)
    pause();
}

bool exists(pid_t pid) {
  return kill(pid, 0) == 0;
}

TEST(Launcher, launch_runs_every_rank_in_its_own_process) {
  SharedWords pids;
  const auto result = launch(3, [&](const RankContext& context) {
    pids[context.rank] = getpid();
    return context.world_size == 3 ? 0 : 1;
  });
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.ranks.size(), 3u);
  EXPECT_EQ(std::set<int>({pids[0], pids[1], pids[2], getpid()}).size(), 4u);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_FALSE(exists(pids[rank]));
}

TEST(Launcher, the_result_of_launch_states_how_the_failed_rank_ended) {
  const auto ended = [](const std::function<int()>& end) {
    const auto result =
        launch(2, [&](const RankContext& context) { return context.rank == 1 ? end() : 0; });
    EXPECT_EQ(result.first_failure, 1);
    return result.ranks[1].text();
  };
  EXPECT_EQ(ended([] { return 7; }), "rank 1 ended with exit status 7");
  EXPECT_EQ(ended([] { return raise(SIGKILL); }), "rank 1 was killed by signal 9 (Killed)");
  EXPECT_EQ(ended([]() -> int { throw std::runtime_error("no such unit: layers.9"); }),
            "rank 1 failed: no such unit: layers.9");
  EXPECT_EQ(ended([]() -> int {
              try {
                throw std::runtime_error("no such file");
              } catch (...) {
                std::throw_with_nested(std::runtime_error("no data"));
              }
            }),
            "rank 1 failed: no data: no such file");
  EXPECT_NE(ended([] { return 256; }), "") << "exit() would make it 0";
}

// Forks a child that calls launch() with ranks that wait for ever, and calls `end` with the child's
// process id when all ranks have started. Returns the status of the child as waitpid() reports it.
// Writes the ranks' process ids to `pids`. Also sets pids[world_size] to 1 if launch() has called
// on_interrupt, its third argument, after the last rank had ended.
int end_a_launch(SharedWords& pids, int world_size, const std::function<void(pid_t)>& end) {
  const pid_t child = fork_process([&] {
    // The shell that started the test program can have set SIGINT, SIGQUIT and SIGHUP to be
    // ignored. Then these signals would not end this child.
    for (int ignored : {SIGINT, SIGQUIT, SIGHUP})
      signal(ignored, SIG_DFL);
    const rlimit no_core_files{};
    setrlimit(RLIMIT_CORE, &no_core_files);
    const auto body = [&](const RankContext& context) -> int {
      pids[context.rank] = getpid();
      wait_for_the_alarm();
    };
    launch(world_size, body, [&] { pids[world_size] = !exists(pids[world_size - 1]); });
    return 0;
  });
  wait_until_set(pids, world_size);
  end(child);
  return status_of(child);
}

TEST(Launcher, a_process_that_has_other_threads_cannot_launch_ranks) {
  std::promise<void> end;
  std::thread other([&] { end.get_future().wait(); });
  pthread_setname_np(other.native_handle(), "of_an_allocator");
  const auto body = [](const RankContext&) { return 0; };
  const std::string why =
      ": this process has 2 threads already, and ranks that are forked from it ";
  EXPECT_CONTAINS(error_of<std::logic_error>([&] { launch(1, body); }), "launch()" + why);
  testing::internal::CaptureStderr();
  EXPECT_EQ(start(1, body, "program"), 1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_CONTAINS(said, "program: start()" + why);
  EXPECT_CONTAINS(said, ", of_an_allocator");
  end.set_value();
  other.join();
  EXPECT_TRUE(launch(1, body).ok());
}

TEST(Launcher, a_signal_that_ends_the_caller_of_launch_ends_every_rank_first) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    SharedWords pids;
    int status = end_a_launch(pids, 3, [&](pid_t child) { kill(child, signal); });
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), signal);
    EXPECT_EQ(pids[3], 1);
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_FALSE(exists(pids[rank]));
  }
}

TEST(Launcher, if_the_caller_of_launch_is_killed_no_rank_is_left_behind) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // so that this process adopts the ranks of the killed caller
  SharedWords pids;
  end_a_launch(pids, 3, [](pid_t child) { kill(child, SIGKILL); });
  for (int rank = 0; rank < 3; ++rank) {
    int status;
    EXPECT_EQ(waitpid(pids[rank], &status, 0), pids[rank]);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace
}  // namespace fsdp
