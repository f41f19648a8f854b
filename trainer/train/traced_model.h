#pragma once

#include <prediction/model_trace.h>
#include <train/trainer.h>

#include <optional>

namespace fsdp {

// The layout and the traces of a run, which are computed before the run begins.
struct TracedModel {
  ShardLayout layout;
  // The traces of the run's step that trace_on_meta() makes. If the run is on a GPU, whose kernels
  // allocate other memory, or if the model calls an operator without a meta kernel, the traces that
  // chain_of() makes, without activations. There are no traces if construct_on_meta is null. In
  // single and ddp there are none either while the task functions that make the layout are not
  // written.
  std::optional<ModelTraces> traces;
};

// Returns the layout of the run's model and, if possible, the traces of its step. Takes no memory
// for parameters, with one exception: single and ddp, which shard nothing, can train before the
// task functions that make the layout are written. Then the model is built, its layout is made with
// a single unit and without traces, and the model is dropped.
TracedModel traced_model(const TrainConfig& config, const FsdpImplementation& fsdp);

}  // namespace fsdp
