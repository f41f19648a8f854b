#pragma once

#include <comm/diagnosis.h>
#include <comm/ledger.h>
#include <launch/rank_context.h>

#include <memory>
#include <vector>

namespace fsdp {

// The ledger of ranks on several hosts, which share no memory: each sends every call that is
// compared to all of its group, and receives theirs, before the bytes of the call move. That costs
// the time that a message takes between the hosts, and (W-1) sizeof(PublishedCall) bytes a rank,
// where a call left out would else end in the process's abortion or in wrong sums.
class RemoteLedger final : public Ledger {
 public:
  // Connects to the others. Throws CollectiveError, which names a rank that can't be reached.
  RemoteLedger(const RankContext& context, const CallRings& rings, int rank,
               std::chrono::milliseconds timeout);
  ~RemoteLedger() override;

  void publish(const PublishedCall& call) override;  // and compares it with all
  void compare(uint64_t) override {}
  void check(uint64_t) override {}
  void wait_for_all(uint64_t, Stage) override {}  // nobody reads this rank's memory
  CollectiveError library_error(const char* library, uint64_t sequence,
                                const std::exception& error) override;

 private:
  struct Exchange;
  std::unique_ptr<Exchange> exchange_;
  std::vector<CallHistory> histories_;  // by rank: their latest calls
};

// The ledger of this rank in the rings' group: a RemoteLedger if that spans hosts.
std::shared_ptr<Ledger> make_ledger(const RankContext& context, const CallRings& rings,
                                    std::chrono::milliseconds timeout);

}  // namespace fsdp
