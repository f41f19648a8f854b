#pragma once

#include <comm/diagnosis.h>
#include <comm/ledger.h>
#include <launch/rank_context.h>

#include <memory>
#include <vector>

namespace fsdp {

// The ledger of ranks on several hosts, which share no memory. Before the bytes of a compared call
// move, each rank sends the call to all ranks of its group and receives theirs. That costs the time
// of one message between hosts, and (W-1) sizeof(PublishedCall) bytes for each rank. Without this
// comparison, a skipped call would end in an abort of the process or in wrong sums.
class RemoteLedger final : public Ledger {
 public:
  // Connects to the other ranks. Throws CollectiveError, which names a rank that can't be reached.
  RemoteLedger(const RankContext& context, const CallRings& rings, int rank,
               std::chrono::milliseconds timeout);
  ~RemoteLedger() override;

  void publish(const PublishedCall& call) override;  // also compares it with the calls of all ranks
  void compare(uint64_t) override {}
  void check(uint64_t) override {}
  void wait_for_all(uint64_t, Stage) override {}  // no rank reads this rank's memory
  CollectiveError library_error(const char* library, uint64_t sequence,
                                const std::exception& error) override;

 private:
  struct Exchange;
  std::unique_ptr<Exchange> exchange_;
  std::vector<CallHistory> histories_;  // by rank: their latest calls
};

// Makes the ledger of this rank in the group of the rings. It is that of make_replayed_ledger() if
// this process replays a rank; otherwise a RemoteLedger if the group spans hosts, else a Ledger.
std::shared_ptr<Ledger> make_ledger(const RankContext& context, const CallRings& rings,
                                    std::chrono::milliseconds timeout);

}  // namespace fsdp
