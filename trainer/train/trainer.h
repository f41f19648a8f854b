#pragma once

#include <config/train_config.h>
#include <planning/trace_on_meta.h>
#include <strategies/strategy.h>
#include <strategies/workload.h>

namespace fsdp {

// The functions of the tasks that the trainer calls: of the reference solutions, or a student's.
struct FsdpImplementation {
  std::unique_ptr<Strategy> (*make_strategy)(const TrainConfig& config, Workload workload,
                                             std::shared_ptr<Communicator> comm);
  // The layout of what make_strategy would make. It needs no ranks.
  ShardLayout (*shard_layout)(const TrainConfig& config, const Workload& workload);
  // Checkpoints the activations of every `every`-th block. Called only if the config asks for it.
  void (*checkpoint_blocks)(Module& model, int every){};
  // Null: neither activations nor the early freeing of the root are predicted.
  ConstructOnMeta construct_on_meta{};
};

// Trains as `config` says, or only prints the units. Starts the ranks, or joins them as start()
// does, and shows progress on stdout. config.reports.json is written when training ends: whole, or
// up to the step whose loss or norm is not finite. config.reports.trace is written however the run
// ends. Returns the exit status, and prints a failure on stderr after the name `program`. The
// calling process must not have run a torch operator.
int run_training(const TrainConfig& config, const FsdpImplementation& fsdp,
                 const std::string& program = "");

}  // namespace fsdp
