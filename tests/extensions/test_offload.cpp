#include <state/whole_state.h>

#include <common/temporary_folder.h>

#include "models.h"
#include "trained.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(Offload);

// One group of the parameters without decay lies between those of the other.
TrainConfig config_of(const std::string& mode, int world_size, const std::string& folder,
                      int64_t pinned) {
  TrainConfig config = extension_config(mode, world_size);
  config.no_decay = "ln";
  config.offload_dir = folder;
  config.pinned = pinned;
  return config;
}

std::string state_after_two_steps(Strategy& strategy, const TrainConfig& config, TestRank& rank) {
  hash_after_two_steps(strategy, config);
  return state_sha256(strategy.state(), *rank.communicator());
}

MULTI_RANK_TEST(Offload, of_the_moments_changes_no_bit_and_costs_the_memory_that_is_predicted) {
  const TemporaryFolder folder;
  const Workload workload = workload_of(language_models().at(2));
  const auto expected = hash_of_single(config_of("single", world_size(), "", 0), workload);
  for (const int64_t pinned : {0, 4096, 1 << 20}) {
    SCOPED_TRACE(std::to_string(pinned) + " bytes pinned");
    const TrainConfig config = config_of("fsdp", world_size(), folder.path(), pinned);
    const RankRun run = run_ranks(
        world_size(), [&](TestRank& rank) { train_as_predicted(rank, config, workload); });
    expect_as_predicted(run);
    expect_on_rank(run, 0, "hash", expected);
  }
}

MULTI_RANK_TEST(Offload, leaves_the_same_state_in_every_mode) {
  const TemporaryFolder folder;
  const Workload workload = workload_of(language_models().at(2));
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    for (const auto& place : {std::string(), folder.path()}) {
      const std::string where = place.empty() ? " in memory" : " in files";
      const TrainConfig fsdp = config_of("fsdp", world_size(), place, 100);
      const auto sharded = make_fsdp_strategy(fsdp, workload, rank.communicator());
      const std::string state = state_after_two_steps(*sharded, fsdp, rank);
      if (rank.rank() == 0) rank.observe("fsdp" + where, state);
      const TrainConfig ddp = config_of("ddp", world_size(), place, 100);
      const auto replicas =
          make_ddp_strategy(ddp, workload, shard_layout(ddp, workload), rank.communicator());
      const std::string of_replicas = state_after_two_steps(*replicas, ddp, rank);
      if (rank.rank() == 0) rank.observe("ddp" + where, of_replicas);
    }
  });
  const auto expected = run.at(0, "fsdp in memory");
  for (const char* which : {"fsdp in files", "ddp in memory", "ddp in files"})
    expect_on_rank(run, 0, which, expected);
}

}  // namespace
}  // namespace fsdp
