#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>

#include <string>

namespace fsdp {

// The words in messages about a file that say what is in the file: earlier partial sums of
// gradients.
inline const std::string kSumsInFile = "sums of gradients that wait";

// Returns a copy of `config` with a MomentFile for the moments of `rank` in
// config.optimizer.moments. The file is in the folder config.memory.offload_dir; if that is empty,
// returns `config` unchanged. Throws what MomentFile's constructor throws. Also throws
// std::runtime_error if the folder has no room left for the partial sums of gradients that wait
// while other microbatches are computed (TreeSum), because these sums are stored in the folder too.
TrainConfig with_state_file(TrainConfig config, const ShardLayout& layout, int rank);

}  // namespace fsdp
