#pragma once

#include <comm/call_rings.h>
#include <comm/collective_error.h>

namespace fsdp {

// What one rank does with the calls of all ranks: it publishes its own, compares them with the
// others', and waits for the others. Every collective is compared before its result is used:
// otherwise a rank that skips a call would exchange its next one with the others' skipped one.
// This one is for ranks of one host, which share memory; see remote_ledger.h for the others.
class Ledger {
 public:
  static constexpr uint64_t kRing = CallRings::kLength;  // calls between a call and its wait

  // `rank`: in the group. `timeout` limits every wait for one rank.
  Ledger(const CallRings& rings, int rank, std::chrono::milliseconds timeout)
      : rings_(rings), rank_(rank), timeout_(timeout) {}
  virtual ~Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  const Group& group() const { return rings_.group(); }
  int rank() const { return rank_; }  // in the group

  // Publishes this rank's next call. First waits until every rank has waited for the call kRing
  // before it, which is overwritten; throws std::logic_error if this rank has not, and never can,
  // because its Handle is gone.
  virtual void publish(const PublishedCall& call);

  // Publishes a call that no rank will compare. Does not wait.
  void publish_unchecked(const PublishedCall& call) { rings_.publish(rank_, call); }

  // Compares call `sequence` with that of each rank which has published it. Throws like check().
  virtual void compare(uint64_t sequence);

  // Waits until every rank has published call `sequence`. Throws CollectiveError if two ranks
  // differ in operation, unit, size, dtype or root (it shows both sides), or if a rank has not come
  // within the timeout, or has ended (it names the rank).
  virtual void check(uint64_t sequence);

  // Says that this rank has reached `stage` of call `sequence`.
  void advance(uint64_t sequence, Stage stage) { rings_.advance(rank_, sequence, stage); }

  // Waits until every rank has reached it. Throws CollectiveError, which names a rank that has not
  // come within the timeout, or has ended.
  virtual void wait_for_all(uint64_t sequence, Stage stage);
  bool all_reached(uint64_t sequence, Stage stage) const;  // does not wait

  // The error to throw when `library` ("gloo"), which moves the bytes of call `sequence`, has
  // thrown `error` because another rank did not move its own: names this rank if it is known.
  virtual CollectiveError library_error(const char* library, uint64_t sequence,
                                        const std::exception& error);

  // ": rank 2 was killed by signal 9 (Killed)" for a rank that does not run; empty if all do. For
  // the error of a rank that can't connect to the others.
  std::string absent();

  // What `rank` published as call `sequence`. Valid from the return of check(sequence) until this
  // rank reaches the last stage that the call has.
  const PublishedCall& at(int rank, uint64_t sequence) const { return rings_.at(rank, sequence); }

  // The number of calls that this rank has published, which is the sequence of its next one.
  uint64_t published() const { return rings_.published(rank_); }

  // How many calls this rank was about to make before this one, over all its groups.
  uint64_t count_call() { return rings_.count_call(rank_); }

 protected:
  // Of the call whose record call `sequence` overwrites. Throws as publish() does.
  void require_waited_for(uint64_t sequence) const;
  std::chrono::milliseconds patience() const;  // for what explains an error
  CollectiveError missing(const std::string& reason, int rank, uint64_t sequence);

  CallRings rings_;  // a view of the shared ones

 private:
  void wait(int rank, uint64_t sequence, Stage stage);
  void require_agreement(int rank, uint64_t sequence) const;

  int rank_;
  std::chrono::milliseconds timeout_;
};

// The text of rank `self` about its call `sequence`, which `rank` has not made: what `rank` has
// called, or how it ended, the likely cause and the last calls of all ranks. `reason` goes on after
// the name of the call: " timed out after 5.0 s". Ranks are those of the rings' group.
std::string missing_rank(const CallRings& rings, int self, const std::string& reason, int rank,
                         uint64_t sequence);

}  // namespace fsdp
