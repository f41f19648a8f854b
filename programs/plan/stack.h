#pragma once

#include <prediction/model_trace.h>

namespace fsdp {

// Of what `config` trains, with the reference solutions.
ShardLayout layout_of(const TrainConfig& config);
ModelTraces traces_of(const TrainConfig& config, const ShardLayout& layout);

}  // namespace fsdp
