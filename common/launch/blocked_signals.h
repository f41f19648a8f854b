#pragma once

#include <signal.h>

#include <chrono>
#include <optional>

namespace fsdp {

// While this object lives, the signals that a process must handle while it waits for its ranks are
// blocked, and next() returns them. So no signal is lost between a check and a sleep. The signals
// are SIGCHLD, SIGCONT, and, unless they are ignored (as under nohup), those by which a terminal or
// a batch system ends or stops a process (SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP), and SIGUSR1
// and SIGUSR2, which are for the ranks.
class BlockedSignals {
 public:
  using Time = std::chrono::steady_clock::time_point;

  BlockedSignals();
  ~BlockedSignals() { restore(); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  // Returns whether the launcher passes `signal` on to the ranks: SIGUSR1, SIGUSR2, and SIGTERM
  // unless its action is the default.
  bool passes_on(int signal) const { return sigismember(&passed_on_, signal) == 1; }

  // Restores the signal mask and the action of SIGCHLD from before this object was made. Call it in
  // a child process, and before this process ends itself by a signal.
  void restore();

  // Sleeps until one of the blocked signals arrives, and returns it; returns 0 at `deadline`.
  int next(std::optional<Time> deadline);

  // Stops this process by SIGTSTP. Returns when SIGCONT has arrived, or at once if the system does
  // not stop the process, because its process group has no shell that could continue it.
  void stop_here();

 private:
  sigset_t held_, passed_on_;
  sigset_t former_mask_;
  struct sigaction former_action_;  // the action of SIGCHLD before this object was made
};

}  // namespace fsdp
