#include <comm/link.h>
#include <testing/counted_clock.h>
#include <testing/multi_rank.h>

#include <algorithm>
#include <stdexcept>

#include "expect_text.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kMicrosecond = 1000;

TEST(Link, is_parsed_from_a_latency_and_a_bandwidth) {
  const Link link = parse_link("200us,1GB/s");
  EXPECT_EQ(link.latency, 200us);
  EXPECT_EQ(link.bytes_per_second, 1e9);
  EXPECT_EQ(parse_link("0.5ms,12.5MB/s").latency, 500us);
  EXPECT_EQ(parse_link("0.5ms,12.5MB/s").bytes_per_second, 12.5e6);
}

TEST(Link, refuses_text_that_is_not_a_latency_and_a_bandwidth) {
  for (const std::string text :
       {"", "200us", "1GB/s", "200,1GB/s", "200us,1GiB/s", "-1us,1GB/s", "200us,0GB/s",
        "200us,1GB/s,2", "1e3us,1GB/s", "61s,1GB/s", "1us,0.9kB/s"}) {
    EXPECT_THROW(parse_link(text), std::invalid_argument) << text;
  }
}

TEST(Link, a_call_takes_a_hop_to_each_other_rank_and_the_time_of_its_bytes) {
  const Link link{10us, 1e9};
  EXPECT_EQ(link.time(Operation::all_gather, 5000, 4), (3 * 10 + 5) * kMicrosecond);
  EXPECT_EQ(link.time(Operation::all_reduce, 5000, 4), (6 * 10 + 5) * kMicrosecond);
  EXPECT_EQ(link.time(Operation::all_gather, 0, 1), 0);
}

MULTI_RANK_SUITE(LinkedCollectives);

// Rank r comes r x 100 us late, and issues three all-gathers of 4,000 bytes from each rank.
MULTI_RANK_TEST(LinkedCollectives, are_done_in_the_order_of_issue_once_the_last_rank_has_come) {
  const auto clock = std::make_shared<CountedClock>();  // each rank has a copy
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
MULTI_RANK_TEST(LinkedCollectives, move_the_values_while_the_ranks_compute) {
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

MULTI_RANK_SUITE_ON(LinkedCollectivesThatDiffer, 2, 3);

MULTI_RANK_TEST(LinkedCollectivesThatDiffer, are_named_before_they_are_timed) {
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
