#include <strategy/fsdp_strategy.h>
#include <task7_integration/predicted_peaks.h>
#include <testing/multi_rank.h>

namespace fsdp {
namespace {

// The table of live bytes is of the reference solution, and exact: the tests of task 7 allow what
// its contracts leave open.
MULTI_RANK_SUITE(LiveBytesOfTheReference);

TEST_P(LiveBytesOfTheReference, are_as_predicted_to_the_byte) {
  TrainConfig config;
  config.world = world_size();
  config.mode = "fsdp";
  config.model = "gpt2-tiny";
  config.steps = 2;
  const RankRun run = run_ranks(config.world, [&](TestRank& rank) {
    const auto strategy = make_fsdp_strategy(config, rank.communicator());
    for (int step = 0; step < 2; ++step) {
      for (size_t phase = 0; phase < kPhases; ++phase)
        live_bytes::reset(static_cast<Phase>(phase));
      const at::Tensor tokens = (at::arange(24 * 12) * 7 + step).remainder(61).view({24, 12});
      strategy->forward_backward(
          {tokens.slice(1, 0, 11).contiguous(), tokens.slice(1, 1).contiguous()});
      strategy->step();
    }
    observe_peaks(rank,
                  predict_live_bytes(schedule(config, strategy->layout(), rank.rank()), "shm"));
  });
  expect_predicted_peaks(run);
}

}  // namespace
}  // namespace fsdp
