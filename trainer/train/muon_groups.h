#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>

#include <string>

namespace fsdp {

// Returns, as text, which parameters Muon updates, how many parameters AdamW updates, and how many
// matrices a rank orthogonalizes; "" if the run does not use Muon. Throws std::invalid_argument,
// which names --adamw, if Muon would get a parameter that is not a matrix, or no parameter at all.
// In the first case the text names the parameter too.
std::string describe_muon(const TrainConfig& config, const ShardLayout& layout);

}  // namespace fsdp
