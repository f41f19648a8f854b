#pragma once

#include <config/train_config.h>
#include <planning/trace_on_meta.h>
#include <strategies/bucket_reduction.h>
#include <strategies/strategy.h>
#include <strategies/workload.h>

namespace fsdp {

// The functions of the tasks that the trainer calls. They come either from the reference solutions
// or from a student.
struct FsdpImplementation {
  std::unique_ptr<Strategy> (*make_strategy)(const TrainConfig& config, Workload workload,
                                             std::shared_ptr<Communicator> comm);
  // Returns the ShardLayout of the strategy that make_strategy() would make: it says where each
  // element of the parameters is stored. Needs no ranks.
  ShardLayout (*shard_layout)(const TrainConfig& config, const Workload& workload);
  // Applies activation checkpointing to every `every`-th block of the model. The trainer calls it
  // only if the config asks for activation checkpointing.
  void (*checkpoint_blocks)(Module& model, int every){};
  // construct_on_meta() of task 1. If it is null, the trainer predicts neither activations nor that
  // the root's parameters are freed before the end of backward.
  ConstructOnMeta construct_on_meta{};
  // Makes the object that reduces ddp's buckets during backward. If it is null, ddp reduces the
  // buckets after backward.
  MakeBucketReduction make_bucket_reduction{};
};

// Trains as `config` says, or only prints the units, the settings or what the run would need.
// - Starts the ranks, or joins the ranks that a launcher has started, as start() does. Shows
//   progress on stdout.
// - Writes config.reports.json when training ends. If a loss or a norm is not finite, the file has
//   the steps up to this one. Writes config.reports.trace whether the run succeeds or fails.
// - Returns the exit status. If the run fails, prints the error on stderr after the name `program`.
// The calling process must not have run a torch operator before.
int run_training(const TrainConfig& config, const FsdpImplementation& fsdp,
                 const std::string& program = "");

}  // namespace fsdp
