#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "exit_status.h"
#include "expect_text.h"
#include "fork_process.h"
#include "rank_failure.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;

// Runs `run` in a forked process that has a session of its own on a new terminal, on which
// background processes must not write (stty tostop). Returns what the process printed on that
// terminal.
std::string said_on_a_terminal(const std::function<void()>& run) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_EQ(grantpt(terminal) + unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  const pid_t process = fork_process([&] {
    alarm(20);
    setsid();
    // The first terminal that a session opens becomes its controlling terminal.
    const int slave = open(name.c_str(), O_RDWR);
    termios settings{};
    tcgetattr(slave, &settings);
    settings.c_lflag |= TOSTOP;
    tcsetattr(slave, TCSANOW, &settings);
    dup2(slave, STDIN_FILENO);
    dup2(slave, STDOUT_FILENO);
    run();
    return 0;
  });
  char text[400]{};
  EXPECT_GT(read(terminal, text, sizeof text - 1), 0);
  EXPECT_EQ(status_of(process), 0);
  close(terminal);
  return text;
}

TEST(RankOnATerminal, a_rank_can_write_to_the_terminal) {
  EXPECT_EQ(said_on_a_terminal([] {
              launch(1, [](const RankContext& context) {
                Communicator::create(context, {.timeout = 200ms});
                return std::puts("a line") < 0 || std::fflush(stdout) != 0 ? 1 : 0;
              });
            }),
            "a line\r\n");
}

// This test creates no Communicator, so the time limit is the default one. If the run lasted until
// that limit, the alarm would end it, and the test would fail.
TEST(RankOnATerminal, the_run_fails_if_a_rank_reads_from_the_terminal) {
  const std::string said = said_on_a_terminal([] {
    std::puts(failure(launch(2, [](const RankContext& context) {
                if (context.rank == 1) std::getchar();
                return context.rank;
              })).c_str());
  });
  EXPECT_CONTAINS(said,
                  "rank 1 reads from the terminal, and was stopped by signal 21: read before");
}

}  // namespace
}  // namespace fsdp
