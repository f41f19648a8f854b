#pragma once

#include <comm/call_rings.h>
#include <comm/collective_error.h>

namespace fsdp {

// What one rank does with the calls of all ranks: it publishes its own, compares them with the
// others', and waits for the others. Every collective is compared before its result is used:
// otherwise a rank that skips a call would exchange its next one with the others' skipped one.
class Ledger {
 public:
  static constexpr uint64_t kRing = CallRings::kLength;  // calls between a call and its wait

  // `rank`: in the group. `timeout` limits every wait for one rank.
  Ledger(const CallRings& rings, int rank, std::chrono::milliseconds timeout)
      : rings_(rings), rank_(rank), timeout_(timeout) {}

  const Group& group() const { return rings_.group(); }
  int rank() const { return rank_; }  // in the group

  // Publishes this rank's next call. First waits until every rank has waited for the call kRing
  // before it, which is overwritten; throws std::logic_error if this rank has not, and never can,
  // because its Handle is gone.
  void publish(const PublishedCall& call);

  // Publishes a call that no rank will compare. Does not wait.
  void note(const PublishedCall& call) { rings_.publish(rank_, call); }

  // Compares call `sequence` with that of each rank which has published it. Throws like check().
  void compare(uint64_t sequence);

  // Waits until every rank has published call `sequence`. Throws CollectiveError if two ranks
  // differ in operation, unit, size, dtype or root (it shows both sides), or if a rank has not come
  // within the timeout, or has ended (it names the rank).
  void check(uint64_t sequence);

  // Says that this rank has reached `stage` of call `sequence`.
  void reach(uint64_t sequence, Stage stage) { rings_.reach(rank_, sequence, stage); }

  // Waits until every rank has reached it. Throws CollectiveError, which names a rank that has not
  // come within the timeout, or has ended.
  void wait_for_all(uint64_t sequence, Stage stage);
  bool all_reached(uint64_t sequence, Stage stage) const;  // does not wait

  // The error to throw when `library` ("gloo"), which moves the bytes of call `sequence`, has
  // thrown `error` because another rank did not move its own: names this rank if it is known.
  CollectiveError failed_in(const char* library, uint64_t sequence,
                            const std::exception& error) const;

  // ": rank 2 was killed by signal 9 (Killed)" for a rank that does not run; empty if all do.
  std::string absent() const;

  // What `rank` published as call `sequence`. Valid from the return of check(sequence) until this
  // rank reaches the last stage that the call has.
  const PublishedCall& at(int rank, uint64_t sequence) const { return rings_.at(rank, sequence); }

  // The number of calls that this rank has published, which is the sequence of its next one.
  uint64_t published() const { return rings_.published(rank_); }

  // How many calls this rank was about to make before this one, over all its groups.
  uint64_t count_call() { return rings_.count_call(rank_); }

 private:
  void wait(int rank, uint64_t sequence, Stage stage) const;
  void require_agreement(int rank, uint64_t sequence) const;
  std::chrono::milliseconds patience() const;  // for what explains an error
  CollectiveError missing(const std::string& reason, int rank, uint64_t sequence) const;

  CallRings rings_;  // a view of the shared ones
  int rank_;
  std::chrono::milliseconds timeout_;
};

}  // namespace fsdp
