#pragma once

#include <config/train_config.h>

#include <optional>

// The settings with which fewer ranks continue a run when a host was lost.
namespace fsdp {

// Returns the settings with which `ranks` ranks compute the parts of `config`, to the bits of their
// sum: it may be another ReduceGradients. Returns nothing if they can't.
std::optional<TrainConfig> with_ranks(TrainConfig config, int ranks);

// Returns how many of `ranks` ranks can continue the run; 0 if none.
int ranks_that_go_on(const TrainConfig& config, int ranks);

}  // namespace fsdp
