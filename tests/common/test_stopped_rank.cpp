#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <gtest/gtest.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>

#include "exit_status.h"
#include "expect_text.h"
#include "fork_process.h"
#include "rank_failure.h"
#include "shared_words.h"

// These tests stop ranks by SIGSTOP or by the signal of Ctrl-Z (SIGTSTP). Some of them continue the
// ranks by SIGCONT.
namespace fsdp {
namespace {

using namespace std::chrono_literals;

// Returns the kernel's letter for the state of a process: R, S, T or Z; 0 if it does not exist.
char state_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  return line[line.rfind(')') + 2];
}

void wait_for_state(pid_t process, const std::string& wanted) {
  while (wanted.find(state_of(process)) == std::string::npos)
    sched_yield();
}

// Forks a process that runs `run` in a process group of its own, as a shell does. After 20 s an
// alarm ends it.
pid_t in_a_group(const std::function<int()>& run) {
  const pid_t process = fork_process([&] {
    setpgid(0, 0);
    signal(SIGTSTP, SIG_DFL);
    alarm(20);
    return run();
  });
  setpgid(process, process);
  return process;
}

// Stops `process`, a child, by the signal that Ctrl-Z sends, and waits until it has stopped.
void stop(pid_t process) {
  kill(process, SIGTSTP);
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, WUNTRACED), process);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_EQ(WSTOPSIG(status), SIGTSTP);
}

TEST(StoppedRank, ranks_are_stopped_by_ctrl_z_and_continued_together_with_their_launcher) {
  // Words 0 and 1 have the process ids of the ranks. Word 2 is 1 when the ranks may end.
  SharedWords words;
  const pid_t launcher = in_a_group([&] {
    const auto wait = [&](const RankContext& context) {
      words[context.rank] = getpid();
      wait_until(words[2], 1);
      return 0;
    };
    return launch(2, wait).ok() ? 0 : 1;
  });
  wait_until_set(words, 2);
  for (int i = 0; i < 2; ++i) {
    stop(launcher);
    for (int rank = 0; rank < 2; ++rank)
      wait_for_state(words[rank], "T");
    kill(launcher, SIGCONT);
    for (int rank = 0; rank < 2; ++rank)
      wait_for_state(words[rank], "RS");
  }
  words[2] = 1;
  EXPECT_EQ(status_of(launcher), 0);
}

TEST(StoppedRank, time_limits_do_not_count_time_in_which_the_launcher_and_its_ranks_are_stopped) {
  // Words 0 and 1 have the process ids of the ranks. Word 2 is 1 when rank 1 may call barrier().
  SharedWords words;
  const pid_t launcher = in_a_group([&] {
    const auto meet = [&](const RankContext& context) {
      auto comm = Communicator::create(context, {.timeout = 1000ms});
      words[context.rank] = getpid();
      if (context.rank == 1) wait_until(words[2], 1);
      comm->barrier("meet").wait();
      return 0;
    };
    return launch(2, meet).ok() ? 0 : 1;
  });
  wait_until_set(words, 2);
  stop(launcher);
  const auto clock = monotonic_clock();
  // Waits for 1.5 s, which is longer than the time limit of the collectives, 1 s.
  clock->sleep_until(clock->now() + 1'500'000'000);
  words[2] = 1;
  kill(launcher, SIGCONT);
  EXPECT_EQ(status_of(launcher), 0);
}

TEST(StoppedRank, launch_fails_if_a_rank_stays_stopped_longer_than_the_time_limit) {
  const pid_t launcher = in_a_group([] {
    const auto body = [](Communicator& comm) {
      comm.barrier("last").wait();
      if (comm.rank() == 1) raise(SIGSTOP);
    };
    EXPECT_EQ(failure(3, {.timeout = 200ms}, body),
              "rank 1 was stopped by signal 19 (Stopped (signal)) after collective #0 barrier "
              "last, and was not continued (SIGCONT) within the time limit");
    std::fflush(nullptr);
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(status_of(launcher), 0);
}

TEST(StoppedRank, the_error_of_a_waiting_rank_names_the_rank_that_was_stopped_by_sigstop) {
  const auto result = launch(2, [](const RankContext& context) {
    auto comm = Communicator::create(
        context, {.timeout = std::chrono::milliseconds(context.rank == 0 ? 200 : 60'000)});
    comm->barrier("first").wait();
    if (context.rank == 1) raise(SIGSTOP);
    comm->barrier("second").wait();
    return 0;
  });
  EXPECT_CONTAINS(failure(result), "rank 1 has not called it; its last call was #0 barrier first");
  EXPECT_CONTAINS(
      failure(result),
      "likely cause: rank 1 was stopped by signal 19 (Stopped (signal)); SIGCONT continues it");
}

TEST(StoppedRank, if_one_rank_is_stopped_and_another_is_missing_the_error_blames_the_stopped_rank) {
  const auto result = launch(3, [](const RankContext& context) {
    auto comm = Communicator::create(
        context, {.timeout = std::chrono::milliseconds(context.rank == 0 ? 300 : 60'000)});
    if (context.rank == 1) pause();
    if (context.rank == 2) raise(SIGSTOP);
    comm->barrier("first").wait();
    return 0;
  });
  EXPECT_CONTAINS(failure(result), "0.3 s: rank 2 has not called it; it has called none yet");
  EXPECT_CONTAINS(failure(result), "likely cause: rank 2 was stopped by signal 19");
}

}  // namespace
}  // namespace fsdp
