#pragma once

#include <strategies/fsdp/ddp_reduction.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <strategies/replica_strategy.h>
#include <testing/multi_rank.h>

#include <memory>

namespace fsdp {

// Returns a rank's strategy for the mode in config.ranks. It works on replicas (hybrid sharding) if
// the config asks for them.
inline std::unique_ptr<Strategy> strategy_of(TestRank& rank, const TrainConfig& config,
                                             const Workload& workload) {
  const bool replicas = config.ranks.mode == Mode::fsdp && config.shards() < config.ranks.world;
  const auto& comm = replicas ? rank.hybrid(config.shards()) : rank.communicator();
  if (config.ranks.mode == Mode::fsdp) return make_fsdp_strategy(config, workload, comm);
  return make_replica_strategy(config, workload, shard_layout(config, workload),
                               config.ranks.mode == Mode::ddp ? comm : nullptr, make_ddp_reduction);
}

}  // namespace fsdp
