#pragma once

#include <signal.h>

#include <chrono>
#include <optional>

namespace fsdp {

// While it lives, the signals that a process which waits for its ranks has to answer are kept back
// until it asks for them, so that none can come between looking and sleeping: SIGCHLD, SIGCONT, and
// those that end or stop a process from a terminal or a batch system, or that it passes on, unless
// they are ignored (as nohup has it).
class BlockedSignals {
 public:
  using Time = std::chrono::steady_clock::time_point;

  BlockedSignals();
  ~BlockedSignals() { restore(); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  // Whether it is for the ranks to answer: SIGUSR1, SIGUSR2, and SIGTERM if it has a handler.
  bool passes_on(int signal) const { return sigismember(&passed_on_, signal) == 1; }

  void restore();  // what was before: for a child, and before a signal ends this process

  // Sleeps until one of them comes, and returns it; 0 if none has come at `deadline`.
  int next(std::optional<Time> deadline);

  // Stops this process by SIGTSTP. Returns when SIGCONT has come, or at once if the system does not
  // stop it: nobody could continue a process group that has no shell.
  void stop_here();

 private:
  sigset_t held_, passed_on_;
  sigset_t former_mask_;
  struct sigaction former_action_;  // of SIGCHLD
};

}  // namespace fsdp
