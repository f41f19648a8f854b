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
#include "rank_failure.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;

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

}  // namespace
}  // namespace fsdp
