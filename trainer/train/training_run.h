#pragma once

#include <launch/rank_context.h>
#include <train/traced_model.h>

#include <nlohmann/json.hpp>

namespace fsdp {

// Trains on one rank, from the creation of the model to the report at the end.
// - `run`: the layout of the model, and the traces with which the needed memory is predicted.
// - `handed`: what take_over_settings() returned: the state of the failed rank whose place this
//   rank takes, or null if this rank starts the run.
// Throws std::runtime_error, on every rank in the same step, if a loss or the norm of the gradients
// is not finite, unless config.training.allow_nan is set.
void train_rank(const TrainConfig& config, const FsdpImplementation& fsdp,
                const RankContext& context, const TracedModel& run,
                const nlohmann::ordered_json& handed);

}  // namespace fsdp
