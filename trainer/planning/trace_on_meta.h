#pragma once

#include <prediction/model_trace.h>
#include <strategies/workload.h>

#include <functional>

namespace fsdp {

// A function that calls `construct` and creates on the meta device every tensor that `construct`
// makes: construct_on_meta() of task 1.
using ConstructOnMeta = void (*)(const std::function<void()>& construct);

// Runs the forward and backward of one microbatch on the meta device, without ranks and without the
// memory of a model. Returns the traces that the model of a rank has on the CPU with `config`.
// - The batch of the step is the real one, in the CPU's memory.
// - Needs the counting allocator. Calls no collective.
// - Leaves the peaks of live_bytes and the default generators as they were.
// Throws c10::NotImplementedError, which names the operator, if an operator has no meta kernel.
ModelTraces trace_on_meta(const TrainConfig& config, const Workload& workload,
                          const ShardLayout& layout, ConstructOnMeta construct_on_meta);

}  // namespace fsdp
