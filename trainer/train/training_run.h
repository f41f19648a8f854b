#pragma once

#include <comm/launcher.h>
#include <train/trainer.h>

namespace fsdp {

// One rank's training, from the model to the report. Throws std::runtime_error, on every rank in
// the same step, if a loss or the norm of the gradients is not finite, unless config.allow_nan.
void train_rank(const TrainConfig& config, const FsdpImplementation& fsdp,
                const RankContext& context);

}  // namespace fsdp
