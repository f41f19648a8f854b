#include <memory/live_bytes.h>
#include <report/parameter_summary.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <strategies/replica_strategy.h>
#include <testing/multi_rank.h>

#include "tiny_training.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE_ON(T7_7_hybrid, 2, 4, 6);

// Returns a configuration for each number of ranks per replica that divides the number of all ranks
// and is smaller than it.
std::vector<TrainConfig> hybrid_configs(int world_size) {
  std::vector<TrainConfig> configs;
  for (int shards = 1; shards < world_size; ++shards) {
    if (world_size % shards != 0) continue;
    TrainConfig config = tiny_config(world_size);
    config.sharding.shard_size = shards;
    config.optimizer.clip = 0.5;
    configs.push_back(config);
  }
  return configs;
}

std::string name_of(const TrainConfig& config) {
  return std::to_string(config.ranks.world / config.shards()) + " replicas of " +
         std::to_string(config.shards());
}

// Trains two steps. Observes the gradient norm of the second step and, on rank 0, the hash of all
// parameters after the steps.
void train(TestRank& rank, Strategy& strategy, const TrainConfig& config) {
  for (int64_t step = 0; step < 2; ++step) {
    strategy.forward_backward(step);
    const double norm = strategy.clip_grad_norm(*config.optimizer.clip, config.optimizer.norm_type);
    if (step == 1) rank.observe("norm", norm);
    strategy.step();
  }
  ParameterSummary summary;
  strategy.full_parameters([&](const auto&, const at::Tensor& p) { summary.add(p); });
  if (rank.rank() == 0) rank.observe("hash", summary.sha256());
}

MULTI_RANK_TEST(T7_7_hybrid, hybrid_sharding_ends_with_the_parameters_of_one_process) {
  for (TrainConfig config : hybrid_configs(world_size())) {
    SCOPED_TRACE(name_of(config));
    const Workload tiny = tiny_workload(config);
    const RankRun replicas = run_ranks(world_size(), [&](TestRank& rank) {
      train(rank, *make_fsdp_strategy(config, tiny, rank.hybrid(config.shards())), config);
    });
    config.ranks.mode = Mode::single;
    const RankRun single = run_ranks(1, [&](TestRank& rank) {
      train(rank, *make_replica_strategy(config, tiny, shard_layout(config, tiny)), config);
    });
    expect_on_all_ranks(replicas, "norm", single.at(0, "norm"));
    expect_on_rank(replicas, 0, "hash", single.at(0, "hash"));
  }
}

MULTI_RANK_TEST(T7_7_hybrid, with_hybrid_sharding_a_rank_holds_a_shard_of_its_replica) {
  for (const TrainConfig& config : hybrid_configs(world_size())) {
    SCOPED_TRACE(name_of(config));
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      const Workload tiny = tiny_workload(config);
      const auto strategy = make_fsdp_strategy(config, tiny, rank.hybrid(config.shards()));
      int64_t padded = 0;
      for (const auto& unit : strategy->layout().units)
        padded += unit.padded_numel;
      rank.observe("ranks for which the layout is made", strategy->layout().world_size);
      rank.observe("bytes of shards", live_bytes::now()[MemoryClass::shards]);
      rank.observe("bytes of the units / ranks of a replica", padded * 4 / config.shards());
    });
    expect_on_all_ranks(run, "ranks for which the layout is made", config.shards());
    expect_on_each_rank(run, "bytes of shards", [&](int rank) {
      return run.at(rank, "bytes of the units / ranks of a replica");
    });
  }
}

}  // namespace
}  // namespace fsdp
