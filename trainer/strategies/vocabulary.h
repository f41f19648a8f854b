#pragma once

#include <config/train_config.h>

#include <cstdint>

namespace fsdp {

// Returns how many ids the run's model has: as many as the model's shape says, or more if the data
// has more.
int64_t vocabulary_of(const TrainConfig& config);

}  // namespace fsdp
