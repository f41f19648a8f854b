#pragma once

#include <config/train_config.h>

#include <cstdint>

namespace fsdp {

// Returns the number of token ids of the run's model: config.model.vocabulary if it is set,
// otherwise the number that the model's shape gives. If the run trains on text or on modular
// addition and its data has more ids, returns the number of these ids.
int64_t vocabulary_of(const TrainConfig& config);

}  // namespace fsdp
