#include <comm/call_rings.h>
#include <comm/collective_error.h>
#include <comm/join.h>
#include <comm/launcher.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <system_error>

namespace fsdp {
namespace {

// While it lives, the signals that run_here() waits for are kept back until it asks for them, so
// that none can come between looking and sleeping.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    sigaddset(&held_, SIGCHLD);
    for (int signal : {SIGINT, SIGTERM}) {
      struct sigaction action;
      sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&held_, signal);
    }
    struct sigaction plain = {};
    plain.sa_handler = SIG_DFL;  // if it were ignored, children could not be waited for
    sigaction(SIGCHLD, &plain, &former_action_);
    sigprocmask(SIG_BLOCK, &held_, &former_mask_);
  }
  ~HeldSignals() { restore(); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  void restore() {
    sigaction(SIGCHLD, &former_action_, nullptr);
    sigprocmask(SIG_SETMASK, &former_mask_, nullptr);
  }

  int next() {
    int signal = -1;
    while (signal < 0)
      signal = sigwaitinfo(&held_, nullptr);
    return signal;
  }

 private:
  sigset_t held_;
  sigset_t former_mask_;
  struct sigaction former_action_;
};

void keep_message(const RankContext& context, const std::string& message) {
  char* page = context.shared->message(context.rank);
  size_t length = std::min(message.size(), SharedRegion::kMessageBytes - 1);
  std::memcpy(page, message.data(), length);
  page[length] = 0;
}

int run_body(const RankContext& context, const std::function<int(const RankContext&)>& body) {
  try {
    int code = body(context);
    return code == 0 ? 0 : std::clamp(code, 1, 255);  // the system keeps eight bits: 256 were 0
  } catch (const std::exception& error) {
    keep_message(context, message_of(error));
  } catch (...) {
    keep_message(context, "an exception that is no std::exception");
  }
  return 1;
}

// Leaves by _exit: what the parent has registered to run at exit is the parent's.
[[noreturn]] void run_rank(const RankContext& context, pid_t parent,
                           const std::function<int(const RankContext&)>& body) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  int code = run_body(context, body);
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(code);
}

// The forked ranks that have not been reaped yet, each with a process group of its own, which ends
// with it. None outlives this object.
class Ranks {
 public:
  explicit Ranks(std::shared_ptr<SharedRegion> shared)
      : shared_(std::move(shared)), pids_(shared_->world_size()) {}
  ~Ranks() { end_all(); }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void add(int rank, pid_t pid) {
    setpgid(pid, pid);  // so does the rank: the group is there whoever comes first
    pids_[rank] = pid;
  }

  bool any() const {
    return std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid > 0; });
  }

  // Those that have ended since the last call; with `flags` 0, waits for all to end.
  std::vector<RankExit> reap(int flags) {
    std::vector<RankExit> ended;
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      if (pids_[rank] == 0 || !has_ended(pids_[rank], flags)) continue;
      kill(-pids_[rank], SIGKILL);  // what it forked; its number is not free before waitpid()
      int status;
      waitpid(pids_[rank], &status, 0);
      pids_[rank] = 0;
      ended.push_back(describe(static_cast<int>(rank), status));
    }
    return ended;
  }

  std::vector<RankExit> end_all() {
    for (pid_t pid : pids_) {
      if (pid > 0) kill(-pid, SIGKILL);
    }
    return reap(0);
  }

 private:
  static bool has_ended(pid_t pid, int flags) {
    siginfo_t info = {};
    return waitid(P_PID, pid, &info, WEXITED | WNOWAIT | flags) == 0 && info.si_pid == pid;
  }

  RankExit describe(int rank, int status) const {
    RankExit exit;
    exit.rank = rank;
    if (WIFSIGNALED(status)) {
      exit.signal = WTERMSIG(status);
    } else {
      exit.code = WEXITSTATUS(status);
    }
    exit.message = shared_->message(rank);
    exit.last_call =
        CallRings(shared_->call_rings(), Group::world(shared_->world_size())).last_call(rank);
    return exit;
  }

  std::shared_ptr<SharedRegion> shared_;
  std::vector<pid_t> pids_;  // by rank; 0 if none was forked here, or reaped
};

void say(const std::string& program, const std::string& text) {
  const char* name = program.empty() ? program_invocation_short_name : program.c_str();
  std::fprintf(stderr, "%s: %s\n", name, text.c_str());
}

[[noreturn]] void end_by(int signal, HeldSignals& held) {
  ::signal(signal, SIG_DFL);
  held.restore();
  raise(signal);
  _exit(128 + signal);
}

// Forks the ranks from `first` to before `end`, which share `shared`, and waits for them.
LaunchResult run_here(int first, int end, const std::shared_ptr<SharedRegion>& shared,
                      HeldSignals& held, const std::function<int(const RankContext&)>& body,
                      const std::function<void()>& on_interrupt = nullptr) {
  const int world_size = shared->world_size();
  LaunchResult result;
  result.ranks.resize(world_size);
  std::fflush(nullptr);  // a child would write what is still in the buffers a second time
  std::cout.flush();

  pid_t parent = getpid();
  Ranks ranks(shared);
  for (int rank = first; rank < end; ++rank) {
    pid_t pid = fork();
    if (pid < 0) {
      throw std::system_error(errno, std::generic_category(),
                              "cannot fork rank " + std::to_string(rank));
    }
    if (pid == 0) {
      held.restore();
      run_rank({rank, world_size, shared}, parent, body);
    }
    ranks.add(rank, pid);
  }

  while (ranks.any()) {
    for (RankExit& exit : ranks.reap(WNOHANG)) {
      if (!exit.ok() && result.first_failure < 0) result.first_failure = exit.rank;
      result.ranks[exit.rank] = std::move(exit);
    }
    if (!result.ok()) {
      for (RankExit& exit : ranks.end_all()) {
        exit.stopped = exit.signal == SIGKILL;
        result.ranks[exit.rank] = std::move(exit);
      }
    }
    if (!ranks.any()) break;
    int signal = held.next();
    if (signal != SIGCHLD) {
      ranks.end_all();
      if (on_interrupt) on_interrupt();
      end_by(signal, held);
    }
  }
  return result;
}

}  // namespace

std::string RankExit::text() const {
  std::string who = "rank " + std::to_string(rank);
  std::string where = last_call.empty() ? "" : " after collective " + last_call;
  if (stopped) return who + " was stopped" + where;
  if (signal != 0) {
    return who + " was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) +
           ')' + where;
  }
  if (code == 0) return who + " succeeded";
  if (message.empty()) return who + " ended with exit status " + std::to_string(code) + where;
  return message.rfind(who, 0) == 0 ? message : who + " failed: " + message;
}

LaunchResult launch(int world_size, const std::function<int(const RankContext&)>& body,
                    const std::function<void()>& on_interrupt) {
  auto shared = SharedRegion::create(world_size);
  HeldSignals held;
  return run_here(0, world_size, shared, held, body, on_interrupt);
}

int start(int world_size, const std::function<int(const RankContext&)>& body,
          const std::string& program, const AtEnd& at_end) {
  try {
    const auto self = started_rank();
    if (self && self->world_size != world_size) {
      throw std::invalid_argument("WORLD_SIZE=" + std::to_string(self->world_size) +
                                  ", but this program is to run on " + std::to_string(world_size) +
                                  (world_size == 1 ? " rank" : " ranks"));
    }
    const auto shared = self ? join(*self) : SharedRegion::create(world_size);
    HeldSignals held;
    const int first = self ? self->rank : 0;
    const int end = self ? first + 1 : world_size;
    const LaunchResult result = run_here(first, end, shared, held, body, [&] {
      if (at_end) at_end("the run was interrupted");
    });
    if (result.ok()) return !at_end || at_end("") ? 0 : 1;
    // The failure of one rank makes others fail: it is told once, and before a signal can end this
    // process. That a rank was killed is news in any case: others may have noticed first.
    const RankExit& failed = result.ranks[result.first_failure];
    if (shared->first_to_fail() || failed.signal != 0) say(program, failed.text());
    if (at_end) at_end(failed.text());
    return 1;
  } catch (const std::invalid_argument& error) {
    say(program, error.what());
    return 2;
  } catch (const std::exception& error) {
    say(program, error.what());
    return 1;
  }
}

}  // namespace fsdp
