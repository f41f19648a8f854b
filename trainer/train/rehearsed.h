#pragma once

#include <data/dataset.h>
#include <train/trainer.h>

#include <memory>
#include <optional>

namespace fsdp {

// What the run trains: language modeling, with activations checkpointed as `config` says.
Workload workload_of_run(const TrainConfig& config, const FsdpImplementation& fsdp,
                         std::shared_ptr<const Dataset> dataset);

// What is known of a run before it begins.
struct Rehearsed {
  ShardLayout layout;
  // Of rehearse(). None on a GPU, whose kernels take memory of their own, and for a model that
  // calls an operator without a meta kernel.
  std::optional<ModelTraces> traces;
};

Rehearsed rehearsed(const TrainConfig& config, const FsdpImplementation& fsdp);

}  // namespace fsdp
