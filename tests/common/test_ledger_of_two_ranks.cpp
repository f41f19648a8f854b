#include <comm/ledger.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

// The Ledger objects of two ranks. In a run, each rank has a process of its own. In this test, both
// ranks are in one process, and their call rings are in the memory of this process. For the Ledger
// objects this makes no difference.
class LedgerOfTwoRanks : public testing::Test {
 protected:
  static constexpr size_t kPage = 4096;

  void* zeroed() {
    size_t bytes = (CallRings::bytes(2) + kPage - 1) / kPage * kPage;
    memory_.reset(std::aligned_alloc(kPage, bytes));
    return std::memset(memory_.get(), 0, bytes);
  }

  static PublishedCall record(uint64_t sequence, const std::string& unit) {
    PublishedCall published;
    published.call.sequence = sequence;
    published.call.operation = Operation::all_gather;
    published.call.dtype = at::kFloat;
    published.call.numel = 64;
    published.call.unit = UnitName(unit);
    return published;
  }

  std::unique_ptr<void, decltype(&std::free)> memory_{nullptr, &std::free};
  CallRings rings_{zeroed(), Group::world(2)};
  Ledger ranks_[2] = {{rings_, 0, 5000ms}, {rings_, 1, 5000ms}};
};

TEST_F(LedgerOfTwoRanks,
       publish_blocks_on_a_full_ledger_ring_until_the_other_rank_has_waited_for_the_oldest_call) {
  for (Ledger& rank : ranks_) {
    for (uint64_t i = 0; i < Ledger::kRing; ++i)
      rank.publish(record(i, "unit"));
  }
  for (uint64_t i = 0; i < Ledger::kRing; ++i)
    ranks_[0].advance(i, Stage::waited_for);
  std::atomic<bool> waited{false};
  std::thread other([&] {
    waited = true;
    ranks_[1].advance(0, Stage::waited_for);
  });
  ranks_[0].publish(record(Ledger::kRing, "unit"));
  EXPECT_TRUE(waited);
  other.join();
}

}  // namespace
}  // namespace fsdp
