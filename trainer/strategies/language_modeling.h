#pragma once

#include <config/train_config.h>
#include <data/dataset.h>
#include <strategies/workload.h>

#include <memory>

namespace fsdp {

// Returns the workload that trains the model that `config` names on batches of `dataset`. The
// workload keeps the batch of the current step in memory, for all microbatches of the step.
Workload language_modeling(const TrainConfig& config, std::shared_ptr<const Dataset> dataset);

}  // namespace fsdp
