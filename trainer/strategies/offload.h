#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>

#include <vector>

namespace fsdp {

// Makes the file of config.offload_dir for the moments of `rank`, and puts it into the optimizer's
// options. Leaves a config without such a folder as it is. Throws what StateFile's constructor
// throws, also if the folder has no room now for what put_aside() will put there.
TrainConfig with_state_file(TrainConfig config, const ShardLayout& layout, int rank);

// A sum of gradients that waits while other parts are computed (TreeSum): `sum` itself, or, if
// `offload_dir` is not empty, a copy in a file there. Throws what copies_in_file() throws.
std::vector<at::Tensor> put_aside(std::vector<at::Tensor> sum, const std::string& offload_dir);

}  // namespace fsdp
