#pragma once

#include <launch/blocked_signals.h>
#include <launch/rank_context.h>
#include <launch/rank_exit.h>
#include <launch/shared_region.h>

#include <chrono>
#include <functional>
#include <memory>

namespace fsdp {

// The ranks that one process forks: all of a run, or the one that torchrun has started it for.
struct Share {
  int first, end;  // ranks of the world, from `first` to `end` - 1
  std::shared_ptr<SharedRegion> shared;
  std::shared_ptr<const Hosts> hosts{};
  std::function<void()> before_body{};  // is called in each rank, before anything else; may be null
};

// How the process that waits for its ranks learns that a rank of another process has failed.
struct FailuresElsewhere {
  std::function<bool()> one_has_failed;  // does not wait
  std::chrono::milliseconds look_every;  // a signal (SIGCHLD) may bring news sooner
};

// Forks the ranks of `share`, each to run `body`, and waits until all have ended. The first
// failure, here or elsewhere, ends the other ranks, and so does a rank that stays stopped for
// longer than the time limit. The signals that `held` keeps back are passed on to the ranks, stop
// and continue them, or end them and this process; before it ends, `on_interrupt` runs, if it is
// given. Throws std::system_error if a rank can't be forked.
LaunchResult run_ranks(const Share& share, BlockedSignals& held,
                       const std::function<int(const RankContext&)>& body,
                       const std::function<void()>& on_interrupt,
                       const FailuresElsewhere* elsewhere = nullptr);

}  // namespace fsdp
