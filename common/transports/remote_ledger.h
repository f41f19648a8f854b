#pragma once

#include <comm/diagnosis.h>
#include <comm/ledger.h>
#include <launch/rank_context.h>

#include <memory>
#include <vector>

namespace fsdp {

// The Ledger for ranks on several hosts, which share no memory. Before the bytes of a compared call
// move, each rank sends the call to all ranks of its group and receives the calls of those ranks.
// That costs the time of one message between hosts, and (W-1) sizeof(PublishedCall) bytes for each
// rank. Without this comparison, a skipped call would end in an abort of the process or in wrong
// sums.
class RemoteLedger final : public Ledger {
 public:
  // Connects to the other ranks. Throws CollectiveError, which names a rank that can't be reached.
  RemoteLedger(const RankContext& context, const CallRings& rings, int rank,
               std::chrono::milliseconds timeout);
  ~RemoteLedger() override;

  // publish() also compares the call with the calls of all ranks, so compare() and check() do
  // nothing.
  void publish(const PublishedCall& call) override;
  void compare(uint64_t) override {}
  void check(uint64_t) override {}
  // wait_for_all() returns at once, because ranks of other hosts can't read this rank's memory.
  void wait_for_all(uint64_t, Stage) override {}
  CollectiveError library_error(const char* library, uint64_t sequence,
                                const std::exception& error) override;

 private:
  struct Exchange;
  std::unique_ptr<Exchange> exchange_;
  std::vector<CallHistory> histories_;  // the latest calls of each rank, by rank
};

// Makes the Ledger of this rank in the group of `rings`. If this process replays a rank, calls
// make_replayed_ledger(). Otherwise makes a RemoteLedger if the group spans hosts, and a Ledger if
// not.
std::shared_ptr<Ledger> make_ledger(const RankContext& context, const CallRings& rings,
                                    std::chrono::milliseconds timeout);

}  // namespace fsdp
