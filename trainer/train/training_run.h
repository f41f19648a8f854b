#pragma once

#include <launch/rank_context.h>
#include <train/traced_model.h>

#include <nlohmann/json.hpp>

namespace fsdp {

// One rank's training, from the model to the report, where predictions are by `run`. Throws
// std::runtime_error, on every rank in the same step, if a loss or the norm of the gradients is not
// finite, unless config.training.allow_nan. `handed`: read_run() of the rank whose place this one
// takes; null if it begins.
void train_rank(const TrainConfig& config, const FsdpImplementation& fsdp,
                const RankContext& context, const TracedModel& run,
                const nlohmann::ordered_json& handed);

}  // namespace fsdp
