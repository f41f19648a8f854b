#pragma once

#include <strategies/strategy.h>
#include <strategies/workload.h>

namespace fsdp {

// Makes the strategy of --mode fsdp. It shards the workload's model over the ranks of `comm`, as
// config.sharding.wrap, .limit, .prefetch, .reshard_after_forward and .meta_init say, and uses the
// sharded optimizer. `comm` connects all config.ranks.world ranks. If config.shards() is smaller
// than that, `comm` has replicas of config.shards() ranks each.
std::unique_ptr<Strategy> make_fsdp_strategy(const TrainConfig& config, Workload workload,
                                             std::shared_ptr<Communicator> comm);

// Returns the layout that make_fsdp_strategy() would give the model of `workload`. Takes no memory
// for parameters and draws no random number.
ShardLayout shard_layout(const TrainConfig& config, const Workload& workload);

// Applies activation checkpointing to the K-th, 2K-th, ... of the modules of `root` whose class
// name ends in "Block", in the order of registration. K is `every`, at least 1.
void checkpoint_blocks(Module& root, int every);

}  // namespace fsdp
