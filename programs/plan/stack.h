#pragma once

#include <planning/plan.h>

namespace fsdp {

// Returns the shard layout of the model of `config`, built with the reference solutions.
ShardLayout layout_of(const TrainConfig& config);

// Returns the meta-device traces of the model of `config`, built with the reference solutions.
ModelTraces traces_of(const TrainConfig& config, const ShardLayout& layout);

// Returns the plan of `config`, whose model is built with the reference solutions.
Plan plan_of(const TrainConfig& config, const Machine& machine);

}  // namespace fsdp
