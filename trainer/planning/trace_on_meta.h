#pragma once

#include <prediction/model_trace.h>
#include <strategies/workload.h>

#include <functional>

namespace fsdp {

// Calls its argument, and gives every tensor that is made meanwhile the meta device: that of
// task 1.
using ConstructOnMeta = void (*)(const std::function<void()>& construct);

// Runs the forward and backward of one part of a step on the meta device, without ranks and without
// the memory of a model: what a rank's model would do on the CPU with `config`. The batch is made
// for real. Needs the counting allocator, calls no collective, and leaves the peaks of live_bytes
// and the default generators as they were. Throws c10::NotImplementedError, which names it, at an
// operator without a meta kernel.
ModelTraces trace_on_meta(const TrainConfig& config, const Workload& workload,
                          const ShardLayout& layout, ConstructOnMeta construct_on_meta);

}  // namespace fsdp
