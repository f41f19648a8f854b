#pragma once

#include <base/torch.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

namespace fsdp {

// Runs `body` in a forked process, on one thread of torch, and expects that `body` returns there
// without a failure. A process that has run torch operators has threads and must not fork. Other
// tests of this program fork, so a test that runs operators runs them in a process of its own.
template <class Body>
void in_a_process(Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_NE(child, -1) << "fork failed";
  if (child == 0) {
    try {
      at::set_num_threads(1);
      body();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "exception: " << error.what();
    } catch (...) {
      ADD_FAILURE() << "unknown exception";
    }
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the failures are printed above";
}

}  // namespace fsdp

// A TEST whose body runs in a process of its own.
#define TEST_IN_A_PROCESS(suite, name)                   \
  class suite##_##name##_Body_Test {                     \
   public:                                               \
    static void run();                                   \
  };                                                     \
  TEST(suite, name) {                                    \
    fsdp::in_a_process(suite##_##name##_Body_Test::run); \
  }                                                      \
  void suite##_##name##_Body_Test::run()
