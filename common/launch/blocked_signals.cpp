#include <launch/blocked_signals.h>

#include <algorithm>
#include <cerrno>

namespace fsdp {

BlockedSignals::BlockedSignals() {
  sigemptyset(&held_);
  sigemptyset(&passed_on_);
  sigaddset(&held_, SIGCHLD);
  sigaddset(&held_, SIGCONT);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGUSR1, SIGUSR2}) {
    struct sigaction action;
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&held_, signal);
    if (signal == SIGUSR1 || signal == SIGUSR2 ||
        (signal == SIGTERM && action.sa_handler != SIG_DFL)) {
      sigaddset(&passed_on_, signal);
    }
  }
  struct sigaction plain = {};
  plain.sa_handler = SIG_DFL;  // if SIGCHLD were ignored, children could not be waited for
  sigaction(SIGCHLD, &plain, &former_action_);
  sigprocmask(SIG_BLOCK, &held_, &former_mask_);
}

void BlockedSignals::restore() {
  sigaction(SIGCHLD, &former_action_, nullptr);
  sigprocmask(SIG_SETMASK, &former_mask_, nullptr);
}

int BlockedSignals::next(std::optional<Time> deadline) {
  for (;;) {
    timespec left{};
    if (deadline) {
      const auto time = std::max(*deadline - Time::clock::now(), Time::duration::zero());
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
      left = {seconds.count(), std::chrono::nanoseconds(time - seconds).count()};
    }
    const int signal = sigtimedwait(&held_, nullptr, deadline ? &left : nullptr);
    if (signal > 0) return signal;
    if (errno == EAGAIN) return 0;
  }
}

void BlockedSignals::stop_here() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);
  sigprocmask(SIG_BLOCK, &stop, nullptr);
}

}  // namespace fsdp
