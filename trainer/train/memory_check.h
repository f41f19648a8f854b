#pragma once

#include <config/train_config.h>
#include <prediction/prediction.h>

#include <cstdint>
#include <optional>

namespace fsdp {

int64_t memory_of_machine();  // returns the number of bytes of this machine's memory and swap

// Throws std::runtime_error if the run is predicted to need more than `memory` bytes on the CPU,
// because such a run would fail in the middle. The prediction covers a step of `processes` ranks
// and, with config.checkpoint.async, the copies of tensors that these ranks hold while they write a
// checkpoint. It leaves out activations if `traces` is empty or has no activations.
void require_enough_memory(const TrainConfig& config, const ShardLayout& layout,
                           const std::optional<ModelTraces>& traces, const Transports& transports,
                           int processes, int64_t memory);

}  // namespace fsdp
