#pragma once

#include <prediction/model_trace.h>
#include <train/trainer.h>

#include <optional>

namespace fsdp {

// What is known of a run before it begins.
struct TracedModel {
  ShardLayout layout;
  // What trace_on_meta() returns. On a GPU, whose kernels take memory of their own, and for a model
  // that calls an operator without a meta kernel: what chain_of() returns, without activations.
  // None if construct_on_meta is missing.
  std::optional<ModelTraces> traces;
};

// Returns the layout of the run's model and, if they can be had, the traces of its step, without
// memory for parameters.
TracedModel traced_model(const TrainConfig& config, const FsdpImplementation& fsdp);

}  // namespace fsdp
