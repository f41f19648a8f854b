#include <comm/link.h>
#include <testing/counted_clock.h>
#include <testing/multi_rank.h>

#include <algorithm>

#include "expect_text.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kMicrosecond = 1000;

MULTI_RANK_SUITE(LinkedCollective);

// On the counted clock, rank r starts r x 100 us late and issues three all-gathers, in which each
// rank sends 4,000 bytes.
MULTI_RANK_TEST(LinkedCollective,
                calls_complete_in_the_order_of_issue_after_the_last_rank_issued_them) {
  const auto clock = std::make_shared<CountedClock>();  // each forked rank has a copy of the clock
  const auto body = [&](TestRank& rank) {
    clock->pass(100 * kMicrosecond * rank.rank());
    std::vector<Handle> gathers;
    for (const char* unit : {"first", "second", "third"})
      gathers.push_back(rank.communicator()->all_gather_into(at::empty({1000L * rank.world_size()}),
                                                             at::zeros({1000}), unit));
    std::vector<int64_t> times;
    for (const size_t i : {1, 0, 2}) {
      gathers[i].wait();
      times.push_back(clock->now());
    }
    rank.observe("times", times);
  };
  const RankRun run = run_ranks(world_size(), body, {.link = Link{10us, 1e9}, .clock = clock});
  const int64_t others = world_size() - 1, start = 100 * kMicrosecond * others;
  const int64_t gather = others * (10 + 4) * kMicrosecond;
  expect_on_all_ranks(run, "times",
                      nlohmann::json{start + 2 * gather, start + 2 * gather, start + 3 * gather});
}

// Each rank computes for 50 us while the link moves its bytes.
MULTI_RANK_TEST(LinkedCollective, a_simulated_link_moves_bytes_while_the_ranks_compute) {
  const auto clock = std::make_shared<CountedClock>();
  const auto body = [&](TestRank& rank) {
    const auto& comm = rank.communicator();
    const at::Tensor gathered = at::empty({1000L * rank.world_size()}), sum = at::ones({3});
    Handle gather = comm->all_gather_into(gathered, at::full({1000}, rank.rank() + 1.0), "unit");
    clock->pass(50 * kMicrosecond);
    gather.wait();
    rank.observe("time", clock->now());
    for (int other = 0; other < rank.world_size(); ++other)
      EXPECT_TRUE(gathered.narrow(0, 1000L * other, 1000).eq(other + 1).all().item<bool>());
    comm->all_reduce(sum, "norm").wait();
    EXPECT_TRUE(sum.eq(rank.world_size()).all().item<bool>());
  };
  const RankRun run = run_ranks(world_size(), body, {.link = Link{10us, 1e9}, .clock = clock});
  const int64_t gather = (world_size() - 1) * (10 + 4) * kMicrosecond;
  expect_on_all_ranks(run, "time", std::max(50 * kMicrosecond, gather));
}

MULTI_RANK_SUITE_ON(LinkedMismatch, 2, 3);

MULTI_RANK_TEST(LinkedMismatch,
                over_a_simulated_link_a_call_that_differs_between_ranks_is_reported) {
  const auto body = [](TestRank& rank) {
    const char* const unit = rank.rank() == 0 ? "this" : "that";
    rank.communicator()
        ->all_gather_into(at::empty({rank.world_size()}), at::ones({1}), unit)
        .wait();
  };
  const RankRun run = try_ranks(world_size(), body, {.link = Link{10us, 1e9}});
  EXPECT_CONTAINS(run.failure(), "collective #0 differs");
}

}  // namespace
}  // namespace fsdp
