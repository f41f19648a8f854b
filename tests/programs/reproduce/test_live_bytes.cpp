#include <prediction/prediction.h>
#include <strategy/fsdp_strategy.h>
#include <testing/multi_rank.h>

namespace fsdp {
namespace {

// The table of live bytes is of the reference solution, and exact: the tests of task 7 allow what
// its contracts leave open.
MULTI_RANK_SUITE(LiveBytesOfTheReference);

TEST_P(LiveBytesOfTheReference, are_the_predicted_ones_to_the_byte) {
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
    const auto predicted =
        predict_live_bytes(config, strategy->layout(), rank.rank(), "shm", /*first=*/false);
    std::string wrong;
    int compared = 0;
    for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
      for (size_t cls = 0; cls < kMemoryClasses; ++cls) {
        const auto expected = predicted[static_cast<size_t>(phase)][cls];
        // The loss is averaged over ranks by the trainer, which is not here.
        if (!expected || cls == static_cast<size_t>(MemoryClass::communication)) continue;
        ++compared;
        const int64_t measured = live_bytes::peak(phase).by_class[cls];
        if (*expected == measured) continue;
        wrong += std::string(to_string(phase)) + " " + to_string(static_cast<MemoryClass>(cls)) +
                 ": predicted " + std::to_string(*expected) + ", measured " +
                 std::to_string(measured) + "; ";
      }
    }
    rank.observe("wrong", wrong);
    rank.observe("compared", compared);
  });
  expect_on_all_ranks(run, "wrong", "");
  expect_on_all_ranks(run, "compared", 15);  // 3 phases, every class but those two
}

}  // namespace
}  // namespace fsdp
