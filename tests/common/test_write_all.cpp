#include <base/write_all.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace fsdp {
namespace {

// Calls write_all() on a pipe that has no reader. Returns the error number that write_all()
// returns.
int error_of_a_broken_pipe() {
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  close(pipe[0]);
  const int error = write_all(pipe[1], "text");
  close(pipe[1]);
  return error;
}

bool is_pending(int signal) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, signal) == 1;
}

void (*action_of(int signal))(int) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

TEST(WriteAll, write_all_to_a_pipe_without_a_reader_fails_and_leaves_the_signals_as_they_were) {
  EXPECT_EQ(action_of(SIGPIPE), SIG_DFL);
  EXPECT_EQ(error_of_a_broken_pipe(), EPIPE);
  EXPECT_EQ(action_of(SIGPIPE), SIG_DFL);
  EXPECT_FALSE(is_pending(SIGPIPE));
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGPIPE), 0);
}

TEST(WriteAll, a_sigpipe_that_was_pending_before_write_all_stays_pending) {
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  raise(SIGPIPE);
  EXPECT_EQ(error_of_a_broken_pipe(), EPIPE);
  EXPECT_TRUE(is_pending(SIGPIPE));
  const timespec now{};
  EXPECT_EQ(sigtimedwait(&pipe, nullptr, &now), SIGPIPE);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace fsdp
