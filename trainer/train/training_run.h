#pragma once

#include <comm/launcher.h>
#include <train/rehearsed.h>

namespace fsdp {

// One rank's training, from the model to the report, where predictions are by `run`. Throws
// std::runtime_error, on every rank in the same step, if a loss or the norm of the gradients is not
// finite, unless config.allow_nan.
void train_rank(const TrainConfig& config, const FsdpImplementation& fsdp,
                const RankContext& context, const Rehearsed& run);

}  // namespace fsdp
