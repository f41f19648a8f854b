#include <prediction/step_time.h>
#include <testing/counted_clock.h>

#include "prefetching_toy.h"

namespace fsdp {
namespace {

// Time is counted, not measured: a block computes for kForward and kBackward, a collective takes
// the link one hop to each other rank, and nothing else takes any time.
constexpr int64_t kHop = 1'000;
constexpr int64_t kForward = 20'000;
constexpr int64_t kBackward = 40'000;
constexpr int kLayers = 4;

// [ns] of a collective
int64_t collective(int world_size) {
  return (world_size - 1) * kHop;
}

// [ns] of the second step's forward and backward, on each rank.
RankRun timed_step(int world_size, int limit, int64_t forward_time, int64_t backward_time,
                   bool reshard_after_forward = true) {
  const auto clock = std::make_shared<CountedClock>();
  RunOptions options;
  options.link = Link{std::chrono::nanoseconds(kHop), 1e18};
  options.clock = clock;
  return run_ranks(
      world_size,
      [&](TestRank& rank) {
        PrefetchingToy toy(rank, limit, kLayers, reshard_after_forward);
        for (const auto& block : toy.model->blocks) {
          block->register_forward_pre_hook([&](Module&, const at::Tensor&) {
            clock->pass(forward_time);
            return at::Tensor();
          });
          block->register_full_backward_pre_hook([&](Module&) { clock->pass(backward_time); });
        }
        const auto step = [&] {
          const int64_t start = clock->now();
          const auto loss = plain_loss(*toy.model, rank.rank());
          const int64_t middle = clock->now();
          loss.backward();
          return std::pair(middle - start, clock->now() - middle);
        };
        step();  // the first knows no order
        const auto [forward, backward] = step();
        rank.observe("forward", forward);
        rank.observe("backward", backward);
        rank.observe("ns of forward in which nothing computes", forward - kLayers * forward_time);
        rank.observe("ns of backward in which nothing computes",
                     backward - kLayers * backward_time);
      },
      options);
}

MULTI_RANK_SUITE(T6_5_overlap);

TEST_P(T6_5_overlap, all_gathers_overlap_with_the_forward_of_the_previous_unit) {
  const RankRun run = timed_step(world_size(), 2, kForward, kBackward);
  // The root's and the first unit's have nothing to hide behind.
  expect_on_all_ranks(run, "ns of forward in which nothing computes", 2 * collective(world_size()));
}

TEST_P(T6_5_overlap, all_gathers_and_reduce_scatters_overlap_with_backward) {
  const RankRun run = timed_step(world_size(), 2, kForward, kBackward);
  // The last unit's all-gather comes before all computing; the first's and the root's
  // reduce-scatters after it.
  expect_on_all_ranks(run, "ns of backward in which nothing computes",
                      3 * collective(world_size()));
}

TEST_P(T6_5_overlap, without_prefetch_a_step_waits_for_every_all_gather) {
  const RankRun run = timed_step(world_size(), 1, kForward, kBackward);
  const int64_t each = collective(world_size());
  expect_on_all_ranks(run, "forward", kLayers * kForward + (1 + kLayers) * each);
  // From the second block of backward on, the all-gather queues behind a reduce-scatter.
  expect_on_all_ranks(run, "backward",
                      kLayers * kBackward + (1 + 2 * (kLayers - 1)) * each + 2 * each);
}

TEST_P(T6_5_overlap, on_a_slow_link_forward_takes_as_long_as_its_collectives) {
  const RankRun run = timed_step(world_size(), 2, 10, 10);
  const int64_t each = collective(world_size());
  if (world_size() == 1) {
    expect_on_all_ranks(run, "forward", kLayers * 10);
  } else {  // the last block computes when all have come
    expect_on_all_ranks(run, "forward", (1 + kLayers) * each + 10);
  }
}

TEST_P(T6_5_overlap, a_step_takes_as_long_as_predicted) {
  const int64_t each = collective(world_size());
  for (const int limit : {1, 2, 3}) {
    for (const bool reshard : {true, false}) {
      for (const int64_t computing : {kHop / 2, kHop, 5 * kHop}) {
        SCOPED_TRACE("limit " + std::to_string(limit) + ", reshard " + std::to_string(reshard) +
                     ", computing " + std::to_string(computing));
        const RankRun run = timed_step(world_size(), limit, computing, 2 * computing, reshard);
        std::vector<UnitTime> units{{0, 0, each, each}};
        units.resize(1 + kLayers, {computing, 2 * computing, each, each});
        for (int r = 0; r < world_size(); ++r) {
          const auto step =
              run.at(r, "forward").get<int64_t>() + run.at(r, "backward").get<int64_t>();
          EXPECT_EQ(step, predict_step_time(units, limit, reshard)) << "rank " << r;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fsdp
