#pragma once

#include <prediction/model_trace.h>
#include <train/trainer.h>

#include <optional>

namespace fsdp {

// The layout and the traces of a run, computed before it begins.
struct TracedModel {
  ShardLayout layout;
  // The traces of trace_on_meta(). If the run is on a GPU, whose kernels allocate other memory, or
  // if the model calls an operator without a meta kernel, the traces of chain_of(), without
  // activations. Empty if construct_on_meta is null and, in single and ddp, if the functions of the
  // tasks that make the layout are not written.
  std::optional<ModelTraces> traces;
};

// Returns the layout of the run's model and, if possible, the traces of its step. Takes no memory
// for parameters. While the functions of the tasks that make the layout are not written, single and
// ddp, which shard nothing, train with the layout of one unit and without traces; to make this
// layout, the model is built and dropped.
TracedModel traced_model(const TrainConfig& config, const FsdpImplementation& fsdp);

}  // namespace fsdp
