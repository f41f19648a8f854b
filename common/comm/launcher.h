#pragma once

#include <comm/hosts.h>
#include <comm/rank_status.h>
#include <comm/shared_region.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// What a rank knows of itself from the process that started it.
struct RankContext {
  int rank{};
  int world_size{1};
  std::shared_ptr<SharedRegion> shared;  // by the ranks of this host
  std::shared_ptr<const Hosts> hosts{};  // null: all ranks are on this host, and one process's

  bool on_one_host(const Group& group) const { return !hosts || hosts->within_one(group); }
  std::vector<int> ranks_here() const;  // of the world, ascending
  int local_rank() const;               // among those: 0, 1, 2, ...
};

// How a rank ended.
struct RankExit {
  int rank{};
  int code{};             // the rank's exit status, if it ended by itself
  int signal{};           // the signal that ended it, else 0
  bool stopped{};         // by launch(), because another rank had failed
  int frozen_by{};        // the signal that had stopped it (SIGSTOP), if none had continued it
  std::string message;    // what() of the exception that ended it, or another reason, else empty
  std::string last_call;  // "#3 all_gather layers.1", its last collective in any group; empty: none

  bool ok() const { return code == 0 && signal == 0; }
  RankStatus status() const;
  // "rank 2 was killed by signal 9 (Killed) after collective #3 all_gather layers.1"
  std::string text() const;
};

struct LaunchResult {
  std::vector<RankExit> ranks;  // by rank
  int first_failure{-1};        // the rank whose failure ended the others, -1 if all succeeded

  bool ok() const { return first_failure < 0; }
};

// Forks `world_size` ranks, runs `body` in each and waits for them. A rank fails if it
// returns non-zero, throws, dies by a signal, can't write what it prints, reads from the terminal,
// or stays stopped (SIGSTOP) for longer than its communicators' time limit. The first failure ends
// the other ranks at once. If a rank returns 0 while others wait for it, their error names it. A
// rank leaves by exit(), which destroys the static
// objects that it has made. A signal that interrupts or kills the caller ends every rank (SIGINT,
// SIGTERM, SIGHUP, SIGQUIT); `on_interrupt` runs after the ranks have ended and before such a
// signal ends the caller. SIGUSR1 and SIGUSR2, and SIGTERM if the caller has a handler for it, go
// to every rank instead, which inherits the caller's handlers. SIGTSTP (Ctrl-Z) and SIGCONT stop
// and continue the ranks with the caller; the time limits stand still meanwhile. Each rank leads a
// process group: what it forks ends with it. Torch computes on one thread in a rank unless
// OMP_NUM_THREADS, or `body` by at::set_num_threads(), says more. Throws std::logic_error if this
// process has other threads, as torch starts them for the first large operator: a child would
// inherit locks that nobody holds any more.
LaunchResult launch(int world_size, const std::function<int(const RankContext&)>& body,
                    const std::function<void()>& on_interrupt = nullptr);

// Runs a program's ranks as launch() does. If torchrun has started this process as one of
// `world_size` ranks, joins the others instead, for which it waits at most `timeout`, and runs this
// rank alone. Returns the exit status for main(): 0; 1 if a rank failed (one process prints why,
// after `program`, by default the name it was called by); 2 if the environment makes no sense.
// `at_end(failure)` runs once all ranks of this process have ended, even if a signal is about to
// end the process; `failure` is empty on success. If it returns false, the exit status is not 0.
//
// If `after_loss` is given and a host is lost, the others go on: the process of each rank forks
// another one in its place, in a world of as many of them as after_loss(their number) says. It has
// what the former one has left in Handover::current when it failed because it had lost a rank. The
// lost host is named once. The host of rank 0 and of the store can't be lost.
using AtEnd = std::function<bool(const std::string& failure)>;
int start(int world_size, const std::function<int(const RankContext&)>& body,
          const std::string& program = "", const AtEnd& at_end = nullptr,
          std::chrono::milliseconds timeout = kDefaultTimeout,
          const std::function<int(int ranks)>& after_loss = nullptr);

}  // namespace fsdp
