#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>

namespace fsdp {

// Throws std::invalid_argument if the pattern of --keep-fp32 is given and matches the name of no
// parameter.
void check_keep_fp32(const TrainConfig& config, const ShardLayout& layout);

}  // namespace fsdp
