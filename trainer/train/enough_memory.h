#pragma once

#include <config/train_config.h>
#include <prediction/model_trace.h>
#include <prediction/prediction.h>

#include <optional>
#include <string>

namespace fsdp {

int64_t memory_of_machine();  // [bytes], with swap

// Throws std::runtime_error if a step of `processes` ranks on the CPU needs more than `memory`, by
// the prediction, which without traces leaves out activations: such a run can only end in the
// middle.
void require_enough_memory(const TrainConfig& config, const ShardLayout& layout,
                           const std::optional<ModelTraces>& traces, const Transports& transports,
                           int processes, int64_t memory);

}  // namespace fsdp
