#pragma once

#include <config/train_config.h>
#include <prediction/prediction.h>

#include <cstdint>
#include <optional>

namespace fsdp {

int64_t memory_of_machine();  // [bytes], swap included

// Throws std::runtime_error if a step of `processes` ranks on the CPU is predicted to need more
// than `memory` bytes, because such a run would fail in the middle. Without traces, the prediction
// leaves out activations.
void require_enough_memory(const TrainConfig& config, const ShardLayout& layout,
                           const std::optional<ModelTraces>& traces, const Transports& transports,
                           int processes, int64_t memory);

}  // namespace fsdp
