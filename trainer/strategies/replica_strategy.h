#pragma once

#include <strategies/bucket_reduction.h>
#include <strategies/strategy.h>
#include <strategies/workload.h>

#include <memory>

namespace fsdp {

// Makes the strategy of --mode ddp or --mode single; `layout` is fsdp's.
// - ddp: a replica on each rank of `comm`. The gradients are summed over ranks in buckets: during
// the
//   backward pass of each microbatch, by the object that `make_reduction` makes; after it, if
//   `make_reduction` is null or returns null; with --reduce-gradients last, once after the last
//   microbatch.
// - single, if `comm` is null: this process computes the microbatches of all ranks, and adds them
//   as those ranks would.
std::unique_ptr<Strategy> make_replica_strategy(const TrainConfig& config, Workload workload,
                                                ShardLayout layout,
                                                std::shared_ptr<Communicator> comm = nullptr,
                                                MakeBucketReduction make_reduction = nullptr);

}  // namespace fsdp
