#pragma once

#include <config/train_config.h>
#include <planning/trace_on_meta.h>
#include <strategies/bucket_reduction.h>
#include <strategies/strategy.h>
#include <strategies/workload.h>

namespace fsdp {

// The functions of the tasks that the trainer calls, either of the reference solutions or of a
// student.
struct FsdpImplementation {
  std::unique_ptr<Strategy> (*make_strategy)(const TrainConfig& config, Workload workload,
                                             std::shared_ptr<Communicator> comm);
  // Returns the layout of the strategy that make_strategy() would make. Needs no ranks.
  ShardLayout (*shard_layout)(const TrainConfig& config, const Workload& workload);
  // Checkpoints the activations of every `every`-th block. Called only if the config asks for it.
  void (*checkpoint_blocks)(Module& model, int every){};
  // construct_on_meta() of task 1. If it is null, neither activations nor the early freeing of the
  // root's parameters are predicted.
  ConstructOnMeta construct_on_meta{};
  // Reduces ddp's buckets during backward. If it is null, ddp reduces them after backward.
  MakeBucketReduction make_bucket_reduction{};
};

// Trains as `config` says, or only prints the units or the settings.
// - Starts the ranks, or joins the ranks that a launcher has started, as start() does. Shows
//   progress on stdout.
// - Writes config.reports.json when training ends: complete, or up to the step whose loss or norm
//   is not finite. Writes config.reports.trace however the run ends.
// - Returns the exit status. Prints a failure on stderr after the name `program`.
// The calling process must not have run a torch operator before.
int run_training(const TrainConfig& config, const FsdpImplementation& fsdp,
                 const std::string& program = "");

}  // namespace fsdp
