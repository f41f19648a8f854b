#pragma once

#include <comm/call.h>
#include <comm/rank_status.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <vector>

namespace fsdp {

struct CallHistory;

// A call as the other ranks see it.
struct PublishedCall {
  Call call;
  int64_t issued_at{};  // [ns], by the clock of the communicator's options
  uint64_t address{};   // where the transport reads this rank's data; 0 if it reads none
};

// How far a rank is with a call.
enum class Stage : uint8_t {
  none,
  published,
  waited_for,  // its wait() has read what the other ranks published
  finished,    // of all-reduce alone: it has read a second time, now the sums
};

// The latest calls of the ranks of a group, in memory that all ranks share: for each rank a ring of
// kLength calls, with the stage of each. A rank writes its own ring and reads those of its group.
// Ranks are numbered as in the group. A Communicator has a set of rings: one for each rank and each
// level of its groups. What is known of a rank itself is there once. Ranks of another host share
// other rings: here theirs are empty, until after a failure deserialize() has filled them.
class CallRings {
 public:
  static constexpr uint64_t kLength = 64;
  static constexpr int kSets = 8;  // Communicators that a rank may have at once

  // Bytes of shared, zeroed memory that `world_size` ranks need.
  static size_t bytes(int world_size);
  CallRings(void* shared, const Group& group, int set = 0);
  const Group& group() const { return group_; }

  // The ranks of the world that share this memory, ascending; until it is called: all.
  void set_local_ranks(const std::vector<int>& ranks);

  // The number of the next Communicator of `rank`, and the set that it has until release_set(): one
  // that no rank has any more. Throws std::logic_error if this rank has kSets Communicators, and
  // CollectiveError if other ranks keep theirs, or the lowest rank here makes none, for longer than
  // `limit`.
  struct Slot {
    uint64_t communicator;
    int set;
  };
  Slot acquire_set(int rank, std::chrono::milliseconds limit);
  void release_set(int rank, int set);

  // How many calls `rank` was about to make before this one, over all its groups.
  uint64_t count_call(int rank);

  // Writes the next call of `rank` over the one kLength before it; its stage is `published`.
  void publish(int rank, const PublishedCall& call);
  void advance(int rank, uint64_t sequence, Stage stage);
  bool reached(int rank, uint64_t sequence, Stage stage) const;
  // Sleeps until `rank` has reached it, for at most `limit`, in which the time does not count that
  // this process is stopped, or until the rank is gone. Returns whether it has reached it.
  bool wait_for(int rank, uint64_t sequence, Stage stage, std::chrono::milliseconds limit) const;

  const PublishedCall& at(int rank, uint64_t sequence) const;  // one of the last kLength
  uint64_t published(int rank) const;  // calls of `rank` so far: the sequence of its next one
  // What the process that has forked `rank` knows of it; wakes those that wait for the rank.
  void set_status(int rank, RankStatus status);
  RankStatus status(int rank) const;
  // A rank of the group that does not run. Waits until there is one, for at most `limit`: who
  // notices first that a rank has gone may be another rank, by a connection that breaks.
  std::optional<int> find_ended_rank(std::chrono::milliseconds limit) const;
  // `process` is that of `rank`, whose end nobody may be left to tell: who waits looks for it.
  void register_process(int rank, pid_t process);
  // "#16 reduce_scatter layers.4", the last one in any group; empty if there is none.
  std::string last_call(int rank) const;
  std::vector<CallHistory> histories() const;  // by rank

  // What a rank was about when it failed because another one did not come.
  struct Lost {
    Group group;
    int set;
    std::optional<uint64_t> sequence;  // of the call; nothing: it was still connecting
  };
  void note_lost(int rank, std::optional<uint64_t> sequence);  // in this group
  std::optional<Lost> lost(int rank) const;

  // All that `rank` has published, as bytes for rings of another host, of the same program.
  std::string serialize(int rank) const;
  void deserialize(int rank, const std::string& pages);

 private:
  struct Entry;
  struct RankHead;
  struct Set;
  struct LocalRanks;
  struct RankPage;
  RankHead& head(int rank) const;
  RankPage& page(int rank) const { return page(set_, group_.level, group_.world_rank(rank)); }
  RankPage& page(int set, Level level, int world_rank) const;
  std::optional<int> set_of(uint64_t communicator, bool chooses);
  template <class Done>
  static void sleep_until(const Done& done, RankHead& rank, std::chrono::nanoseconds limit);
  Entry& entry(int rank, uint64_t sequence) const;
  static void look_for_process(RankHead& rank);

  LocalRanks* here_;  // shared by all ranks, as are
  RankHead* heads_;   // [world_size]
  Set* sets_;         // [kSets]
  RankPage* pages_;   // [kSets][kLevels][world_size]
  Group group_;
  int set_;
  int spins_;  // looks at a stage before this rank sleeps
};

}  // namespace fsdp
