#pragma once

#include <config/train_config.h>

#include <cstdint>

namespace fsdp {

// Returns how many ids the run's model has: config.model.vocabulary if it is set; otherwise as many
// as the model's shape says, or more if text or modular addition needs more.
int64_t vocabulary_of(const TrainConfig& config);

}  // namespace fsdp
