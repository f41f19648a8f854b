#include <comm/ledger.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

// The ledger of ranks that live in this process: it sees no difference.
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

TEST_F(LedgerOfTwoRanks, shows_each_rank_the_calls_of_the_others) {
  EXPECT_EQ(rings_.published(0), 0u);
  EXPECT_EQ(rings_.last_call(0), "");
  ranks_[0].publish(record(0, "layers.0"));
  ranks_[1].publish(record(0, "layers.0"));
  ranks_[1].check(0);
  EXPECT_EQ(ranks_[0].published(), 1u);
  EXPECT_EQ(rings_.last_call(0), "#0 all_gather layers.0");
  EXPECT_EQ(ranks_[1].at(0, 0).call.text(), "all_gather layers.0 (64 x float, 256 B)");
}

TEST_F(LedgerOfTwoRanks, keeps_the_end_of_a_long_name) {
  ranks_[0].publish(record(0, std::string(100, 'x').append(".layers.17")));
  EXPECT_EQ(ranks_[0].at(0, 0).call.unit, std::string(53, 'x').append(".layers.17"));
}

TEST_F(LedgerOfTwoRanks, blocks_a_rank_that_is_too_far_ahead_until_the_others_have_waited) {
  for (Ledger& rank : ranks_) {
    for (uint64_t i = 0; i < Ledger::kRing; ++i)
      rank.publish(record(i, "unit"));
  }
  for (uint64_t i = 0; i < Ledger::kRing; ++i)
    ranks_[0].reach(i, Stage::waited_for);
  std::atomic<bool> waited{false};
  std::thread other([&] {
    waited = true;
    ranks_[1].reach(0, Stage::waited_for);
  });
  ranks_[0].publish(record(Ledger::kRing, "unit"));
  EXPECT_TRUE(waited);
  other.join();
}

TEST_F(LedgerOfTwoRanks, waits_for_the_news_that_a_rank_has_gone) {
  EXPECT_FALSE(rings_.absent(1ms));
  std::thread other([&] { rings_.set_status(1, {RankStatus::Kind::ended, 0}); });
  EXPECT_EQ(rings_.absent(60'000ms), 1);
  other.join();
  EXPECT_EQ(rings_.status(1).text(), "has ended with status 0");
}

TEST_F(LedgerOfTwoRanks, loses_no_wake_up_over_many_calls) {
  constexpr uint64_t kCalls = 20'000;
  auto play = [&](int rank) {
    for (uint64_t i = 0; i < kCalls; ++i) {
      ranks_[rank].publish(record(i, "unit"));
      ranks_[rank].check(i);
      ranks_[rank].reach(i, Stage::waited_for);
      ranks_[rank].wait_for_all(i, Stage::waited_for);
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(ranks_[1].published(), kCalls);
}

}  // namespace
}  // namespace fsdp
