#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>

#include <string>

namespace fsdp {

// The name of partial sums of gradients in the messages of a file that holds them.
inline const std::string kSumsInFile = "sums of gradients that wait";

// Returns `config` with a file for the moments of `rank`, in its offload folder, in the optimizer's
// options. Returns a config without an offload folder unchanged. Throws what MomentFile's
// constructor throws, also if the folder now has no room for the partial sums of gradients that
// wait while other microbatches are computed (TreeSum), because these sums lie in the folder too.
TrainConfig with_state_file(TrainConfig config, const ShardLayout& layout, int rank);

}  // namespace fsdp
