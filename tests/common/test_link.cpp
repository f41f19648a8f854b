#include <comm/link.h>
#include <testing/counted_clock.h>
#include <testing/multi_rank.h>

#include <stdexcept>

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

struct Setting {
  std::string backend;
  int world_size;
};

class LinkedCollectives : public testing::TestWithParam<Setting> {
 protected:
  LinkedCollectives() {
    options_.backend = GetParam().backend;
    options_.link = Link{10us, 1e9};
    options_.clock = clock_;
  }

  // [ns] of an all-gather in which the other ranks send 4,000 bytes each
  int64_t gather_time() const {
    const int others = GetParam().world_size - 1;
    return others * (10 + 4) * kMicrosecond;
  }

  // Each rank has a copy of the clock.
  RankRun run(const std::function<void(TestRank&, CountedClock&)>& body) {
    return run_ranks(
        GetParam().world_size, [&](TestRank& rank) { body(rank, *clock_); }, options_);
  }

  std::shared_ptr<CountedClock> clock_{std::make_shared<CountedClock>()};
  RunOptions options_;
};

INSTANTIATE_TEST_SUITE_P(, LinkedCollectives,
                         testing::Values(Setting{"shm", 1}, Setting{"shm", 2}, Setting{"shm", 3},
                                         Setting{"shm", 4}, Setting{"gloo", 1}, Setting{"gloo", 3}),
                         [](const auto& info) {
                           return info.param.backend + "_W" + std::to_string(info.param.world_size);
                         });

// An all-gather of 1,000 elements a rank that can be waited for later.
struct Gather {
  Gather(TestRank& rank, const std::string& unit)
      : output(at::empty({1000L * rank.world_size()})),
        handle(rank.communicator()->all_gather_into(
            output, at::full({1000}, static_cast<float>(rank.rank())), unit)) {}
  at::Tensor output;
  Handle handle;
};

TEST_P(LinkedCollectives, are_done_when_the_link_has_moved_the_bytes_of_the_last_rank) {
  const RankRun run = this->run([](TestRank& rank, CountedClock& clock) {
    clock.pass(100 * kMicrosecond * (rank.rank() + 1));
    Gather(rank, "unit").handle.wait();
    rank.observe("time", clock.now());
  });
  expect_on_all_ranks(run, "time", 100 * kMicrosecond * GetParam().world_size + gather_time());
}

TEST_P(LinkedCollectives, use_the_link_in_the_order_of_issue_in_any_order_of_waits) {
  const RankRun run = this->run([](TestRank& rank, CountedClock& clock) {
    Gather first(rank, "first"), second(rank, "second"), third(rank, "third");
    second.handle.wait();
    rank.observe("second", clock.now());
    first.handle.wait();
    rank.observe("first", clock.now());
    third.handle.wait();
    rank.observe("third", clock.now());
  });
  expect_on_all_ranks(run, "second", 2 * gather_time());
  expect_on_all_ranks(run, "first", 2 * gather_time());
  expect_on_all_ranks(run, "third", 3 * gather_time());
}

TEST_P(LinkedCollectives, overlap_with_what_a_rank_computes_meanwhile) {
  const RankRun run = this->run([](TestRank& rank, CountedClock& clock) {
    Gather gather(rank, "unit");
    clock.pass(50 * kMicrosecond);
    gather.handle.wait();
    rank.observe("time", clock.now());
  });
  expect_on_all_ranks(run, "time", std::max(50 * kMicrosecond, gather_time()));
}

}  // namespace
}  // namespace fsdp
