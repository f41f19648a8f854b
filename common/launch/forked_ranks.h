#pragma once

#include <launch/rank_exit.h>
#include <launch/shared_region.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <vector>

namespace fsdp {

// The forked ranks that have not been reaped yet. Each rank leads a process group, which ends with
// the rank. No rank outlives this object. This object writes the status of its ranks into the
// memory that the ranks share.
class ForkedRanks {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit ForkedRanks(std::shared_ptr<SharedRegion> shared);
  ~ForkedRanks() { end_all(); }
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;

  void add(int rank, pid_t pid);
  bool any() const;

  // Returns the ranks that have ended since the last reap(). The other ranks see at once that a
  // rank has succeeded. They see that a rank has failed only if the caller sets the status of that
  // rank, as start() does.
  std::vector<RankExit> reap();

  // Kills all remaining ranks. Returns how they ended.
  std::vector<RankExit> end_all();

  // Sends a signal to all remaining ranks and to what they have forked.
  void send(int signal);
  void pass_on(int signal) const;  // sends a signal to the ranks, not to what they have forked

  // Returns the time from which a stopped rank counts as failed: SharedRegion's longest_wait()
  // after it was stopped, or the time at which it was stopped if it reads from the terminal. If
  // several ranks are stopped, returns the earliest of these times; if no rank is stopped, returns
  // nothing. After that time the caller must call end_all(), which returns each stopped rank with
  // its `stopped_by`.
  std::optional<Time> limit_of_stopped() const;

 private:
  struct Forked {
    pid_t pid{};  // process of the rank; 0: this process has not forked the rank, or has reaped it
    int stopped_by{};
    Time stopped_at{};
  };
  void note_stops(int rank);
  RankExit reap(int rank);
  RankExit describe(int rank, int status) const;

  std::shared_ptr<SharedRegion> shared_;
  std::vector<Forked> ranks_;
};

}  // namespace fsdp
