#include <state/whole_state.h>

#include "models.h"
#include "trained.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(StateHash);

std::string state_hash_after_two_steps(TestRank& rank, const TrainConfig& config,
                                       const Workload& workload) {
  const auto strategy = strategy_of(rank, config, workload);
  for (int64_t step = 0; step < 2; ++step)
    train_step(*strategy, config, step);
  return state_sha256(strategy->state(), *rank.communicator());
}

nlohmann::json state_hash(const TrainConfig& config, const Workload& workload) {
  const RankRun run = run_ranks(config.mode == "single" ? 1 : config.world, [&](TestRank& rank) {
    rank.observe("hash", state_hash_after_two_steps(rank, config, workload));
  });
  return run.at(0, "hash");
}

MULTI_RANK_TEST(StateHash, is_the_same_in_all_modes_and_strategies_and_for_all_units) {
  for (const size_t model : {1, 2}) {
    const Workload workload = workload_of(language_models().at(model));
    TrainConfig config = extension_config("single", world_size());
    config.no_decay = "bias";
    const auto expected = state_hash(config, workload);
    config.mode = "ddp";
    EXPECT_EQ(state_hash(config, workload), expected) << "ddp";
    config.mode = "fsdp";
    for (const std::string wrap : {"auto", "block", "none"}) {
      config.wrap = wrap;
      EXPECT_EQ(state_hash(config, workload), expected) << "units: " << wrap;
    }
  }
}

MULTI_RANK_TEST(StateHash, is_that_of_one_process_with_replicas) {
  const Workload workload = workload_of(language_models().at(0));
  for (int shards = 1; shards < world_size(); ++shards) {
    if (world_size() % shards != 0) continue;
    TrainConfig config = extension_config("fsdp", world_size());
    config.shard_size = shards;
    const auto hash = state_hash(config, workload);
    config.mode = "single";
    EXPECT_EQ(hash, state_hash(config, workload)) << "shards of " << shards;
  }
}

}  // namespace
}  // namespace fsdp
