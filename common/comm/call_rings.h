#pragma once

#include <comm/call.h>
#include <comm/rank_status.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <vector>

namespace fsdp {

struct CallHistory;

// A call as its rank publishes it for the other ranks.
struct PublishedCall {
  Call call;
  int64_t issued_at{};  // [ns] when the rank issued the call, by CommunicatorOptions::clock
  // The address, in the memory that the ranks share, at which the other ranks read this rank's data
  // of the call; 0: they read no data there.
  uint64_t address{};
};

// How far a rank is with a call: the stages, in the order in which the rank reaches them.
enum class Stage : uint8_t {
  none,
  published,
  waited_for,  // the rank's wait() has read the data of the other ranks
  finished,    // only in an all-reduce: the rank's wait() has also read the sums of the other ranks
};

// The latest calls of the ranks of a group, in memory that the ranks of a host share: for each rank
// a ring of kLength calls, with the stage of each call. A rank writes its own ring and reads those
// of its group. Ranks are numbered as in the group.
// - A Communicator uses one set of rings: a ring for each rank and each Level (kind of group). The
//   status of a rank is stored once, outside the sets.
// - On each host, the rings of ranks of other hosts are empty until, after a failure, deserialize()
//   fills them.
class CallRings {
 public:
  static constexpr uint64_t kLength = 64;
  static constexpr int kSets = 8;  // the most Communicators that a rank may have at once

  // Returns how many bytes of shared, zeroed memory CallRings needs for `world_size` ranks.
  static size_t bytes(int world_size);
  CallRings(void* shared, const Group& group, int set = 0);
  const Group& group() const { return group_; }

  // Sets which ranks share this memory: those of this host, numbered in the world, ascending. Until
  // set_local_ranks() is called, all ranks of the world share it.
  void set_local_ranks(const std::vector<int>& ranks);

  // Reserves a set of rings that no rank uses any more for the next Communicator of `rank`, until
  // release_set(). Returns the number of the Communicator and the set. Throws
  // - std::logic_error if this rank has kSets Communicators;
  // - CollectiveError if, within `limit`, the other ranks free no set or the lowest rank of this
  //   host does not create the Communicator, or if the lowest rank has ended.
  struct Slot {
    uint64_t communicator;
    int set;
  };
  Slot acquire_set(int rank, std::chrono::milliseconds limit);
  void release_set(int rank, int set);

  // Counts a call that `rank` is about to make. Returns how many calls of `rank` were counted
  // before, over all its groups.
  uint64_t count_call(int rank);

  // Publishes the next call of `rank` with the stage `published`. The record of the call overwrites
  // that of the call which is kLength calls older.
  void publish(int rank, const PublishedCall& call);
  void advance(int rank, uint64_t sequence, Stage stage);
  bool reached(int rank, uint64_t sequence, Stage stage) const;
  // Waits until `rank` has reached `stage` of call `sequence` or is gone, for at most `limit`. Time
  // during which this process is stopped does not count. Returns whether the rank has reached the
  // stage.
  bool wait_for(int rank, uint64_t sequence, Stage stage, std::chrono::milliseconds limit) const;

  // Returns the record of call `sequence` of `rank`, which must be one of the last kLength calls of
  // `rank`.
  const PublishedCall& at(int rank, uint64_t sequence) const;
  // Returns how many calls `rank` has published, which is the sequence of its next call.
  uint64_t published(int rank) const;
  // Sets the status of `rank`, as the process that forked it sees it, and wakes the ranks that wait
  // for `rank`.
  void set_status(int rank, RankStatus status);
  RankStatus status(int rank) const;
  // Returns a rank of the group that is not running; nothing if all run. Waits for such a rank for
  // at most `limit`, because another rank can notice a broken connection before the status of the
  // ended rank is written.
  std::optional<int> find_ended_rank(std::chrono::milliseconds limit) const;
  // Tells the ranks that wait for `rank` to check that `process`, the process of `rank`, still
  // exists. The process that forked `process` may be killed too, and then cannot report its end.
  void register_process(int rank, pid_t process);
  // Returns "#16 reduce_scatter layers.4", the last call of `rank` in any group; empty if it has
  // none.
  std::string last_call(int rank) const;
  // Returns for each rank of the group its last calls, at most kLength, and its status.
  std::vector<CallHistory> histories() const;

  // The call in which a rank failed because another rank was missing, or because a library failed
  // and the missing rank is not known.
  struct Lost {
    Group group;
    int set;
    // Sequence of the call in which the rank failed; nothing: the rank failed while it connected.
    std::optional<uint64_t> sequence;
  };
  // Records that `rank` has failed in the call `sequence` of this object's group: lost(rank)
  // returns it. `sequence` is empty if the rank failed while it connected.
  void note_lost(int rank, std::optional<uint64_t> sequence);
  std::optional<Lost> lost(int rank) const;

  // Returns the rings of `rank`, which hold the latest calls that `rank` has published, as bytes
  // that deserialize() reads in a process of the same program on another host.
  std::string serialize(int rank) const;
  void deserialize(int rank, const std::string& pages);

 private:
  struct Entry;
  struct RankHead;
  struct Set;
  struct LocalRanks;
  struct RankPage;
  int ranks_of_host() const;
  RankHead& head(int rank) const;
  RankPage& page(int rank) const { return page(set_, group_.level, group_.world_rank(rank)); }
  RankPage& page(int set, Level level, int world_rank) const;
  std::optional<int> set_of(uint64_t communicator, bool chooses);
  template <class Done>
  static void sleep_until(const Done& done, RankHead& rank, std::chrono::nanoseconds limit);
  Entry& entry(int rank, uint64_t sequence) const;
  static void look_for_process(RankHead& rank);

  // here_, heads_, sets_ and pages_ point into the shared memory.
  LocalRanks* here_;
  RankHead* heads_;  // [world_size]
  Set* sets_;        // [kSets]
  RankPage* pages_;  // [kSets][kLevels][world_size]
  Group group_;
  int set_;
  int spins_;  // how often a waiting rank checks a stage before it sleeps
};

}  // namespace fsdp
