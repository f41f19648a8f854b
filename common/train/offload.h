#pragma once

#include <config/train_config.h>
#include <layout/shard_layout.h>

namespace fsdp {

// Makes the file of config.offload_dir for the moments of `rank`, and puts it into the optimizer's
// options. Leaves a config without such a folder as it is. Throws what StateFile's constructor
// throws.
TrainConfig with_state_file(TrainConfig config, const ShardLayout& layout, int rank);

}  // namespace fsdp
