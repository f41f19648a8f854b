#include <prediction/step_time.h>
#include <testing/counted_clock.h>

#include "prefetching_toy.h"

namespace fsdp {
namespace {

// Time is counted, not measured: the root and the blocks compute for the times in `Times`, a
// collective occupies the link for one hop of kHop ns to each other rank, and nothing else takes
// time.
constexpr int64_t kHop = 1'000;
constexpr int kLayers = 4;

// Returns the time, in ns, that a collective occupies the link.
int64_t collective(int world_size) {
  return (world_size - 1) * kHop;
}

struct Times {
  int64_t forward{20'000};   // time in ns for which a block computes in forward
  int64_t backward{40'000};  // time in ns for which a block computes in backward
  int64_t root{};            // time in ns for which the root computes in forward, before the blocks
};

// Returns the names of the places in a step at which a rank may wait, in the order of the step.
std::vector<std::string> places() {
  std::vector<std::string> names{"before the forward of root"};
  for (int i = 0; i < kLayers; ++i)
    names.push_back("before the forward of blocks" + std::to_string(i));
  names.emplace_back("before the backward of root");
  for (int i = kLayers; i-- > 0;)
    names.push_back("before the backward of blocks" + std::to_string(i));
  names.emplace_back("at the end of backward");
  return names;
}

std::string wait_at(const std::string& place) {
  return "ns that a rank waits " + place;
}

// Observes how long the rank waits at each place of the second step, under names that begin with
// `prefix`. (The first step does not prefetch in forward, because it has no last forward.)
void observe_waits(TestRank& rank, CountedClock& clock, int limit, Times times,
                   bool reshard_after_forward = true, const std::string& prefix = "") {
  PrefetchingToy toy(rank, limit, kLayers, reshard_after_forward);
  const auto names = places();
  bool second = false;
  size_t place = 0;
  int64_t since = 0;
  const auto compute = [&](int64_t time) {
    if (second) rank.observe(prefix + wait_at(names.at(place++)), clock.now() - since);
    clock.pass(time);
    since = clock.now();
  };
  for (size_t i = 0; i < toy.modules.size(); ++i) {
    toy.modules[i]->register_forward_pre_hook([&, i](Module&, const at::Tensor&) {
      compute(i == 0 ? times.root : times.forward);
      return at::Tensor();
    });
    toy.modules[i]->register_full_backward_pre_hook(
        [&, i](Module&) { compute(i == 0 ? 0 : times.backward); });
  }
  for (int step = 0; step < 2; ++step) {
    second = step == 1;
    since = clock.now();
    plain_loss(*toy.model, rank.rank()).backward();
    compute(0);
  }
}

RankRun timed_step(int world_size, int limit, Times times) {
  const auto clock = std::make_shared<CountedClock>();
  return run_ranks(
      world_size, [&](TestRank& rank) { observe_waits(rank, *clock, limit, times); },
      over_counted_link(clock, std::chrono::nanoseconds(kHop)));
}

// Expects that the rank waits for `expected[place]` collectives at each place from number `begin`
// to number `end`, and for none at a place that `expected` lacks.
void expect_waits(const RankRun& run, const std::map<std::string, int>& expected, size_t begin,
                  size_t end) {
  const auto names = places();
  for (size_t i = begin; i < end; ++i) {
    const auto found = expected.find(names[i]);
    const int collectives = found == expected.end() ? 0 : found->second;
    expect_on_all_ranks(run, wait_at(names[i]), collectives * collective(run.world_size()));
  }
}

constexpr size_t kBackward = 1 + kLayers;  // index in places() of the first place of backward

MULTI_RANK_SUITE_ON(T6_5_overlap, 2, 3, 4);  // not on one rank, because a single rank never waits

MULTI_RANK_TEST(T6_5_overlap, the_first_blocks_all_gather_overlaps_with_what_the_root_computes) {
  const RankRun run = timed_step(world_size(), 2, {20'000, 40'000, 30'000});
  // In forward, the rank waits only for the all-gather of the root, during which nothing computes.
  expect_waits(run, {{"before the forward of root", 1}}, 0, kBackward);
}

MULTI_RANK_TEST(T6_5_overlap, all_gathers_overlap_with_the_forward_of_the_previous_unit) {
  const RankRun run = timed_step(world_size(), 2, {});
  // In forward, the rank waits only for the all-gathers of the root and of blocks0, during which
  // nothing computes: here the root computes for no time.
  expect_waits(run, {{"before the forward of root", 1}, {"before the forward of blocks0", 1}}, 0,
               kBackward);
}

MULTI_RANK_TEST(T6_5_overlap, all_gathers_and_reduce_scatters_overlap_with_backward) {
  const RankRun run = timed_step(world_size(), 2, {});
  // The last unit's all-gather comes before all computation, and the reduce-scatters of the first
  // unit and of the root come after it.
  expect_waits(run, {{"before the backward of blocks3", 1}, {"at the end of backward", 2}},
               kBackward, places().size());
}

// Computes what a rank and its link do in a step according to the headers of tasks 3, 4 and 6.
// Times are in ns.
class ExpectedStep {
 public:
  ExpectedStep(int world_size, int limit, Times times, bool reshard_after_forward)
      : each_(collective(world_size)), window_(limit - 1) {
    gather(0);
    gather_ahead({1, 2, 3, 4}, 0);
    compute(0, times.root);
    pass({1, 2, 3, 4}, times.forward);
    if (reshard_after_forward) done_.erase(done_.upper_bound(0), done_.end());
    compute(0, 0);
    pass({4, 3, 2, 1}, times.backward, /*reduces=*/true);
    reduce();
    wait(reduced_);
    compute(0, 0);
  }
  const std::vector<int64_t>& waits() const { return waits_; }

 private:
  using Order = std::vector<int>;  // the indices of units in the order of use; 0 is the root

  int64_t use_link() { return link_free_ = std::max(link_free_, now_) + each_; }
  void gather(int unit) {
    if (done_.count(unit) == 0) done_[unit] = use_link();
  }
  void gather_ahead(const Order& order, size_t begin) {
    for (size_t i = begin; i < std::min(begin + window_, order.size()); ++i)
      gather(order[i]);
  }
  void wait(int64_t until) { now_ = std::max(now_, until); }
  void reduce() {
    wait(reduced_);
    reduced_ = use_link();
  }
  void compute(int unit, int64_t time) {
    if (done_.count(unit) > 0) wait(done_[unit]);
    waits_.push_back(now_ - since_);
    since_ = now_ += time;
  }
  void pass(const Order& order, int64_t time, bool reduces = false) {
    for (size_t i = 0; i < order.size(); ++i) {
      gather(order[i]);
      wait(done_[order[i]]);
      gather_ahead(order, i + 1);
      compute(order[i], time);
      if (reduces) reduce();
    }
  }

  int64_t each_;
  size_t window_;
  int64_t now_{}, since_{}, link_free_{}, reduced_{};
  // Index of a unit -> time, in ns, at which its all-gather has ended.
  std::map<int, int64_t> done_;
  std::vector<int64_t> waits_;
};

struct Case {
  int limit;
  bool reshard;
  // Time in ns for which a block computes in forward. In backward it computes twice as long.
  int64_t computing;
  std::string text() const {
    return "limit " + std::to_string(limit) + ", reshard_after_forward " +
           (reshard ? "on" : "off") + ", a block computes " + std::to_string(computing) + " ns: ";
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int limit : {1, 2, 3, 100}) {
    for (const bool reshard : {true, false}) {
      for (const int64_t computing : {kHop / 2, kHop, 5 * kHop})
        all.push_back({limit, reshard, computing});
    }
  }
  return all;
}

MULTI_RANK_TEST(T6_5_overlap, a_step_takes_as_long_as_predicted) {
  const auto clock = std::make_shared<CountedClock>();
  const RankRun run = run_ranks(
      world_size(),
      [&](TestRank& rank) {
        for (const Case& c : cases()) {
          const Times times{c.computing, 2 * c.computing};
          observe_waits(rank, *clock, c.limit, times, c.reshard, c.text());
        }
      },
      over_counted_link(clock, std::chrono::nanoseconds(kHop)));
  const int64_t each = collective(world_size());
  for (const Case& c : cases()) {
    const auto expected =
        ExpectedStep(world_size(), c.limit, {c.computing, 2 * c.computing}, c.reshard).waits();
    const auto names = places();
    // The time of the step on rank 0, in ns: first the computation, to which the loop adds the
    // waits.
    int64_t step = 3 * kLayers * c.computing;
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string wait = c.text() + wait_at(names[i]);
      expect_on_all_ranks(run, wait, expected.at(i));
      step += run.at(0, wait).get<int64_t>();
    }
    std::vector<UnitTime> units(1 + kLayers, {c.computing, 2 * c.computing});
    units[0] = {};
    TrainConfig config;
    config.sharding.limit = c.limit;
    config.sharding.reshard_after_forward = c.reshard;
    const int64_t predicted =
        predict_step_time(config, units, [&](const auto&) { return each; }).total();
    EXPECT_EQ(step, predicted) << c.text() << "the step takes " << step
                               << " ns, but predict_step_time() says " << predicted << " ns";
  }
}

}  // namespace
}  // namespace fsdp
