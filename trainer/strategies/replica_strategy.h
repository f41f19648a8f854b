#pragma once

#include <strategies/strategy.h>
#include <strategies/workload.h>

#include <memory>

namespace fsdp {

// Makes the strategy of --mode ddp or --mode single; `layout` is fsdp's. (The library's
// DistributedDataParallel has a Reducer of its own.)
// - ddp: a replica on each rank of `comm`. The gradients of each microbatch are summed in buckets
//   during the backward pass; with --reduce-gradients last, once after the last microbatch.
// - single, if `comm` is null: this process computes the microbatches of all ranks, and adds them
//   as those ranks would.
std::unique_ptr<Strategy> make_replica_strategy(const TrainConfig& config, Workload workload,
                                                ShardLayout layout,
                                                std::shared_ptr<Communicator> comm = nullptr);

}  // namespace fsdp
