#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>

#include <string>

namespace fsdp {

// What the partial sums of gradients are called in the messages of a file that holds them.
inline const std::string kSumsInFile = "sums of gradients that wait";

// Returns `config` with a file in its offload folder for the moments of `rank` in the optimizer's
// options. Returns a config without such a folder as it is. Throws what MomentFile's constructor
// throws, also if the folder has no room now for the sums of gradients that wait while other parts
// are computed (TreeSum): these lie in the folder too.
TrainConfig with_state_file(TrainConfig config, const ShardLayout& layout, int rank);

}  // namespace fsdp
