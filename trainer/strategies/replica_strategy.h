#pragma once

#include <strategies/bucket_reduction.h>
#include <strategies/strategy.h>
#include <strategies/workload.h>

#include <memory>

namespace fsdp {

// Makes the strategy of --mode ddp or --mode single. `layout`: the layout that --mode fsdp would
// have.
// - ddp: each rank of `comm` has a replica of the model. Gradients are summed over ranks in
//   buckets. The object that `make_reduction` makes reduces the buckets during the backward pass of
//   each microbatch. If `make_reduction` is null or returns null, ddp reduces the buckets after
//   each backward pass. With --reduce-gradients last, ddp reduces the buckets once, after the last
//   microbatch.
// - single, if `comm` is null: this process computes the microbatches of all ranks, and adds their
//   gradients in the order in which those ranks would add them.
std::unique_ptr<Strategy> make_replica_strategy(const TrainConfig& config, Workload workload,
                                                ShardLayout layout,
                                                std::shared_ptr<Communicator> comm = nullptr,
                                                MakeBucketReduction make_reduction = nullptr);

}  // namespace fsdp
