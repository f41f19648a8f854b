#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>

#include <string>

namespace fsdp {

// Returns which parameters Muon updates and which AdamW, and how many matrices a rank
// orthogonalizes; "" if the run does not use Muon.
// Throws std::invalid_argument, which names --adamw and the parameter, if Muon would get a
// parameter that is not a matrix, and if it would get no parameter.
std::string describe_muon(const TrainConfig& config, const ShardLayout& layout);

}  // namespace fsdp
