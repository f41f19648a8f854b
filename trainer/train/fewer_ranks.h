#pragma once

#include <config/train_config.h>

#include <optional>

// This file has the functions that find the settings with which fewer ranks continue a run after a
// host was lost.
namespace fsdp {

// Returns the settings with which `ranks` ranks continue the run of `config`. With them the
// gradients are summed over the same microbatches with the same bits. These settings may have
// another value of ReduceGradients. Returns nothing if there are no such settings for `ranks`
// ranks.
std::optional<TrainConfig> with_ranks(TrainConfig config, int ranks);

// Returns with how many of `ranks` ranks the run can continue: the largest number for which
// with_ranks() returns settings, or 0.
int ranks_that_go_on(const TrainConfig& config, int ranks);

}  // namespace fsdp
