#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

namespace fsdp {

// Forks a process that runs `body` and exits with the status that `body` returns. Returns its
// process id; wait for it with status_of(). After a minute an alarm ends the process, so that it
// does not outlive a test that has failed; `body` may set another time with alarm().
inline pid_t fork_process(const std::function<int()>& body) {
  std::fflush(nullptr);  // so that the new process does not write the buffered text again
  const pid_t process = fork();
  EXPECT_NE(process, -1) << "fork failed";
  if (process == 0) {
    alarm(60);
    const int status = body();
    std::fflush(nullptr);
    _exit(status);
  }
  return process;
}

}  // namespace fsdp
