#pragma once

#include <config/train_config.h>

#include <optional>

// The settings with which fewer ranks continue a run when a host was lost.
namespace fsdp {

// Returns the settings with which `ranks` ranks continue the run of `config`, with the same
// microbatches and the same bits of their sum. These settings may have another ReduceGradients.
// Returns nothing if the ranks cannot continue.
std::optional<TrainConfig> with_ranks(TrainConfig config, int ranks);

// Returns how many of `ranks` ranks can continue the run: the largest number that can, or 0.
int ranks_that_go_on(const TrainConfig& config, int ranks);

}  // namespace fsdp
