#pragma once

#include <comm/call_rings.h>
#include <comm/collective_error.h>

namespace fsdp {

// One rank's view of the calls of its group: it publishes this rank's calls, compares them with
// those of the other ranks, and waits for the other ranks. A collective is compared before its
// result is used. Otherwise, if a rank skipped a call, the data of its next call would be mixed
// with the data of the call that it skipped. This class is for ranks of one host, which share
// memory; RemoteLedger (remote_ledger.h) is for ranks of several hosts.
class Ledger {
 public:
  // The most calls of a rank that may be pending at the same time: issued, but not yet waited for.
  static constexpr uint64_t kRing = CallRings::kLength;

  // `rank` is the number of this rank in the group. `timeout` limits every wait for one rank.
  Ledger(const CallRings& rings, int rank, std::chrono::milliseconds timeout)
      : rings_(rings), rank_(rank), timeout_(timeout) {}
  virtual ~Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  const Group& group() const { return rings_.group(); }
  int rank() const { return rank_; }  // this rank's number in the group

  // Publishes this rank's next call, which overwrites the record of the call kRing before it. So
  // first waits until every rank has waited for that earlier call. Throws
  // - std::logic_error if this rank has not waited for that earlier call, and never can, because
  //   its Handle is gone;
  // - CollectiveError as wait_for_all() does.
  virtual void publish(const PublishedCall& call);

  // Publishes a call that no rank will compare. Does not wait.
  void publish_unchecked(const PublishedCall& call) { rings_.publish(rank_, call); }

  // Compares call `sequence` with the call of each rank that has published it already. Throws
  // CollectiveError, as check() does, if two ranks differ.
  virtual void compare(uint64_t sequence);

  // Waits until every rank has published call `sequence`, and compares the calls. Throws
  // CollectiveError
  // - if two ranks differ in operation, unit, size, dtype, root or calling function; the message
  //   shows both sides;
  // - if a rank has not published the call within the timeout, or has ended; the message names the
  //   rank.
  virtual void check(uint64_t sequence);

  // Records that this rank has reached `stage` of call `sequence`.
  void advance(uint64_t sequence, Stage stage) { rings_.advance(rank_, sequence, stage); }

  // Waits until every rank has reached `stage` of call `sequence`. Throws CollectiveError, which
  // names a rank that has not reached it within the timeout, or has ended.
  virtual void wait_for_all(uint64_t sequence, Stage stage);
  // Returns whether every rank has reached `stage` of call `sequence`; does not wait.
  bool all_reached(uint64_t sequence, Stage stage) const;

  // Returns the error to throw when `library` ("gloo"), which moves the bytes of call `sequence`,
  // has thrown `error`. The usual reason is that another rank did not move its bytes: the text
  // names that other rank if it is known.
  virtual CollectiveError library_error(const char* library, uint64_t sequence,
                                        const std::exception& error);

  // Call it when this rank cannot connect to the other ranks. Stores that this rank was still
  // connecting (CallRings::lost()). Returns ": rank 2 was killed by signal 9 (Killed)" for a rank
  // of the group that is not running; empty if all run.
  std::string absent();

  // Returns what `rank` published as call `sequence`. Valid from the return of check(sequence)
  // until this rank reaches the last stage of the call.
  const PublishedCall& at(int rank, uint64_t sequence) const { return rings_.at(rank, sequence); }

  // Returns the number of calls that this rank has published, which is the sequence of its next
  // call.
  uint64_t published() const { return rings_.published(rank_); }

  // Counts a call that this rank is about to make. Returns how many calls of this rank were counted
  // before, over all its groups.
  uint64_t count_call() { return rings_.count_call(rank_); }

 protected:
  // Call `sequence` overwrites the record of an earlier call. Throws std::logic_error unless this
  // rank has waited for that earlier call.
  void require_waited_for(uint64_t sequence) const;
  // Returns how long this rank, which is about to throw an error, still waits for one other rank,
  // so that the message can show the rank's call or how the rank ended: at most 1 s.
  std::chrono::milliseconds patience() const;
  CollectiveError missing(const std::string& reason, int rank, uint64_t sequence);

  CallRings rings_;  // this object's view of the call rings in shared memory

 private:
  void wait(int rank, uint64_t sequence, Stage stage);
  void require_agreement(int rank, uint64_t sequence) const;

  int rank_;
  std::chrono::milliseconds timeout_;
};

// Returns the error text of rank `self` for its call `sequence`, in which `rank` is missing: what
// `rank` has called or how it ended, the likely cause, and the last calls of all ranks. `reason`
// follows the name of the call: " timed out after 5.0 s". Ranks are numbered as in the group of the
// rings.
std::string missing_rank(const CallRings& rings, int self, const std::string& reason, int rank,
                         uint64_t sequence);

}  // namespace fsdp
