#include "models.h"
#include "trained.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(StepInBackward);

// One part for each rank. One group of the parameters without decay lies between those of the
// other.
TrainConfig config_of(const std::string& mode, int world_size, bool in_backward) {
  TrainConfig config = extension_config(mode, world_size);
  config.parts = world_size;
  config.no_decay = "ln";
  config.step_in_backward = in_backward;
  return config;
}

MULTI_RANK_TEST(StepInBackward, changes_no_bit_and_costs_the_memory_that_is_predicted) {
  for (const auto& model : language_models()) {
    const Workload workload = workload_of(model);
    const auto expected = hash_of_single(config_of("single", world_size(), false), workload);
    for (const char* wrap : {"auto", "block", "none"}) {
      for (const int limit : {1, 2, kAllUnits}) {
        SCOPED_TRACE(model.name + " in units of " + wrap + ", limit " + std::to_string(limit));
        TrainConfig config = config_of("fsdp", world_size(), true);
        config.wrap = wrap;
        config.limit = limit;
        expect_as_predicted(config, workload, expected);
      }
    }
  }
}

// Those of two units at a time, or of the first block and the root.
MULTI_RANK_TEST(StepInBackward, keeps_few_sharded_gradients) {
  const Workload workload =
      workload_of({"ten layers", [] {
                     return std::make_shared<GPT2>(GPT2Options{200, kContext, kWidth, 10, 2, 12});
                   }});
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    std::map<bool, int64_t> peaks;
    for (const bool in_backward : {false, true}) {
      const TrainConfig config = config_of("fsdp", world_size(), in_backward);
      const auto strategy = make_fsdp_strategy(config, workload, rank.communicator());
      train_step(*strategy, config, 0);
      live_bytes::reset(Phase::backward);
      strategy->forward_backward(1);
      const auto cls = static_cast<size_t>(MemoryClass::sharded_gradients);
      peaks[in_backward] = live_bytes::peak(Phase::backward).by_class[cls];
      strategy->step();
    }
    rank.observe("fewer", 2 * peaks[true] < peaks[false]);
  });
  expect_on_all_ranks(run, "fewer", true);
}

}  // namespace
}  // namespace fsdp
