#include <base/child_program.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "exit_status.h"
#include "fork_process.h"

using namespace fsdp;

namespace {

TEST(ChildProgram, a_child_program_ends_with_the_process_that_started_it) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork_process([&] {
    const ChildProgram child([&](int) {
      if (write(ends[1], "x", 1) != 1) _exit(1);
      return std::vector<std::string>{"sleep", "600"};
    });
    return pause();
  });
  close(ends[1]);
  char byte{};
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  kill(parent, SIGKILL);
  status_of(parent);
  pollfd left{ends[0], POLLIN, 0};
  ASSERT_EQ(poll(&left, 1, 20'000), 1) << "the program still has its end of the pipe";
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
}

}  // namespace
