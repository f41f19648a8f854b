#pragma once

#include <launch/blocked_signals.h>
#include <launch/rank_context.h>
#include <launch/rank_exit.h>
#include <launch/shared_region.h>

#include <chrono>
#include <functional>
#include <memory>

namespace fsdp {

// The ranks that this process forks: all ranks of a run, or the one rank for which a launcher has
// started it.
struct Share {
  int first, end;  // ranks of the world, from `first` to `end` - 1
  std::shared_ptr<SharedRegion> shared;
  std::shared_ptr<const Hosts> hosts{};
  const Handover* handover{};  // becomes RankContext::handover of each rank
};

// How a process that waits for its ranks notices that a rank of another process has failed.
struct FailuresElsewhere {
  // Returns whether a rank of another process has failed. Does not wait.
  std::function<bool()> one_has_failed;
  // The time between two calls of one_has_failed(). If SIGCHLD arrives, the next call comes at
  // once.
  std::chrono::milliseconds look_every;
};

// Forks the ranks of `share`, each to run `body`, and waits until all have ended.
// - The first failure, in this process or elsewhere, ends the other ranks, and so does a rank that
//   stays stopped for longer than the time limit.
// - A signal that `signals` returns is passed on to the ranks, stops or continues them, or ends
//   them and this process; then `on_interrupt`, if given, runs before this process ends.
// Throws std::system_error if a rank can't be forked.
LaunchResult run_ranks(const Share& share, BlockedSignals& signals,
                       const std::function<int(const RankContext&)>& body,
                       const std::function<void()>& on_interrupt,
                       const FailuresElsewhere* elsewhere = nullptr);

}  // namespace fsdp
