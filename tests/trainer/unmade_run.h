#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>

#include <string>

#include "mode_of.h"

// This file makes configs and shard layouts for tests that start no run.
namespace fsdp {

inline TrainConfig config_of(const std::string& mode, int64_t steps = 5) {
  TrainConfig config;
  config.ranks.mode = mode_of(mode);
  config.training.steps = steps;
  return config;
}

// Returns the layout of one unit with one parameter of 1,600 elements on `ranks` ranks.
inline ShardLayout layout_on(int ranks) {
  ShardLayout layout;
  layout.world_size = ranks;
  layout.units = {{"block", 1600, /*root=*/false, /*trainable=*/true}};
  layout.parameters = {{"block.weight", 0, 0, 1600, /*trainable=*/true}};
  return layout;
}

}  // namespace fsdp
