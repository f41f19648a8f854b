#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>

#include "expect_text.h"
#include "rank_failure.h"
#include "set_variables.h"
#include "shared_words.h"

// Ranks that are stopped and continued, and what they may print to.
namespace fsdp {
namespace {

using namespace std::chrono_literals;

// The state of a process as the kernel names it: R, S, T, Z; 0 if it is not there.
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

// Runs `run` in a process group of its own, as a shell does; if it does not end, an alarm ends it.
pid_t in_a_group(const std::function<int()>& run) {
  std::fflush(nullptr);
  const pid_t process = fork();
  if (process == 0) {
    setpgid(0, 0);
    signal(SIGTSTP, SIG_DFL);
    alarm(20);
    _exit(run());
  }
  setpgid(process, process);
  return process;
}

int status_of(pid_t process) {
  int status = 0;
  waitpid(process, &status, 0);
  return status;
}

// As Ctrl-Z does.
void stop(pid_t process) {
  kill(process, SIGTSTP);
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, WUNTRACED), process);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_EQ(WSTOPSIG(status), SIGTSTP);
}

TEST(StoppedRanks, stop_and_go_on_with_the_process_that_waits_for_them) {
  SharedWords words;  // the ranks' processes, then whether they may end
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

TEST(StoppedRanks, a_time_limit_does_not_count_while_they_are_stopped) {
  SharedWords words;  // the processes, then whether rank 1 may come
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
  clock->sleep_until(clock->now() + 1'500'000'000);  // [ns] longer than the limit
  words[2] = 1;
  kill(launcher, SIGCONT);
  EXPECT_EQ(status_of(launcher), 0);
}

TEST(StoppedRanks, that_nobody_continues_within_the_limit_are_a_failure) {
  const pid_t launcher = in_a_group([] {
    const auto body = [](Communicator& comm) {
      comm.barrier("last").wait();
      if (comm.rank() == 1) raise(SIGSTOP);
    };
    EXPECT_EQ(failure(3, {.timeout = 200ms}, body),
              "rank 1 was stopped by signal 19 (Stopped (signal)) after collective #0 barrier "
              "last, and nobody has let it go on (SIGCONT) within the time limit");
    std::fflush(nullptr);
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(status_of(launcher), 0);
}

TEST(StoppedRanks, are_named_by_those_that_wait_for_them) {
  const auto result = launch(2, [](const RankContext& context) {
    auto comm = Communicator::create(
        context, {.timeout = std::chrono::milliseconds(context.rank == 0 ? 200 : 60'000)});
    comm->barrier("first").wait();
    if (context.rank == 1) raise(SIGSTOP);
    comm->barrier("second").wait();
    return 0;
  });
  EXPECT_CONTAINS(failure(result), "rank 1 has not called it; its last call was #0 barrier first");
  EXPECT_CONTAINS(failure(result),
                  "likely cause: rank 1 was stopped by signal 19 (Stopped (signal)); SIGCONT lets");
}

TEST(StoppedRanks, are_named_before_ranks_that_may_be_waiting_for_them) {
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

// What `run` prints on a terminal on which background processes may not write (stty tostop).
std::string said_on_a_terminal(const std::function<void()>& run) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_EQ(grantpt(terminal) + unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  std::fflush(nullptr);
  const pid_t process = fork();
  if (process == 0) {
    alarm(20);
    setsid();
    const int slave = open(name.c_str(), O_RDWR);  // becomes the terminal of the session
    termios settings{};
    tcgetattr(slave, &settings);
    settings.c_lflag |= TOSTOP;
    tcsetattr(slave, TCSANOW, &settings);
    dup2(slave, STDIN_FILENO);
    dup2(slave, STDOUT_FILENO);
    run();
    std::fflush(stdout);
    _exit(0);
  }
  char text[400]{};
  EXPECT_GT(read(terminal, text, sizeof text - 1), 0);
  EXPECT_EQ(status_of(process), 0);
  close(terminal);
  return text;
}

TEST(RanksOnATerminal, may_write_to_it_though_they_are_in_groups_of_their_own) {
  EXPECT_EQ(said_on_a_terminal([] {
              launch(1, [](const RankContext& context) {
                Communicator::create(context, {.timeout = 200ms});
                return std::puts("a line") < 0 || std::fflush(stdout) != 0 ? 1 : 0;
              });
            }),
            "a line\r\n");
}

// The limit is so long that a test which waits for it fails.
TEST(RanksOnATerminal, that_read_from_it_end_the_run_at_once) {
  const std::string said = said_on_a_terminal([] {
    std::puts(failure(launch(2, [](const RankContext& context) {
                if (context.rank == 1) std::getchar();
                return context.rank;
              })).c_str());
  });
  EXPECT_CONTAINS(said,
                  "rank 1 reads from the terminal, and was stopped by signal 21: read before");
}

TEST(RanksThatPrint, fail_if_that_can_not_be_written) {
  const auto print_to = [](const char* path) {
    return failure(launch(2, [&](const RankContext& context) {
      if (context.rank == 1) return 0;
      return std::freopen(path, "w", stdout) == nullptr || std::puts("a line") < 0 ? 1 : 0;
    }));
  };
  EXPECT_EQ(print_to("/dev/full"), "rank 0 failed: standard output: No space left on device");
  EXPECT_EQ(print_to("/dev/null"), "");
  const auto close_and_print = [](const RankContext&) {
    close(STDOUT_FILENO);  // nobody wants it
    std::puts("a line");
    return 0;
  };
  EXPECT_EQ(failure(launch(1, close_and_print)), "");
}

TEST(RanksThatPrint, end_by_the_signal_if_the_reader_has_gone) {
  const auto print = [](Communicator&) {
    int ends[2];
    require(pipe(ends) == 0, "pipe");
    close(ends[0]);
    dup2(ends[1], STDOUT_FILENO);
    std::puts("a line");
  };
  EXPECT_EQ(failure(1, {.backend = "gloo"}, print), "rank 0 was killed by signal 13 (Broken pipe)");
}

TEST(ThreadsOfRanks, are_one_unless_the_environment_says_more) {
  const SetVariables set(Variables{{"OMP_NUM_THREADS", ""}});
  SharedWords words;
  launch(1, [&](const RankContext&) {
    words[0] = at::get_num_threads();
    return 0;
  });
  EXPECT_EQ(words[0], 1);
}

}  // namespace
}  // namespace fsdp
