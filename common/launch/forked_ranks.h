#pragma once

#include <launch/rank_exit.h>
#include <launch/shared_region.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <vector>

namespace fsdp {

// The forked ranks that have not been reaped yet, each with a process group of its own, which ends
// with it. None outlives this object. What it sees of a rank it tells the other ranks, in the
// memory that they share.
class ForkedRanks {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit ForkedRanks(std::shared_ptr<SharedRegion> shared);
  ~ForkedRanks() { end_all(); }
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;

  void add(int rank, pid_t pid);
  bool any() const;

  // Those that have ended since the last call. The other ranks learn at once that a rank has
  // succeeded; the caller has to say that one has failed.
  std::vector<RankExit> reap();

  // Kills all that are left.
  std::vector<RankExit> end_all();

  // A signal to all that are left, and to what they have forked.
  void send(int signal);
  void pass_on(int signal) const;  // to the ranks alone

  // When the rank that has been stopped for longest will have been so for SharedRegion's
  // longest_wait(); nothing if none is stopped. end_all() then reports every stopped rank as
  // frozen.
  std::optional<Time> limit_of_stopped() const;

 private:
  struct Forked {
    pid_t pid{};  // 0 if none was forked here, or reaped
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
