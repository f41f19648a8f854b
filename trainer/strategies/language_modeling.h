#pragma once

#include <config/train_config.h>
#include <data/dataset.h>
#include <strategies/workload.h>

#include <memory>

namespace fsdp {

// Returns the workload that trains the model that `config` names on batches of the dataset. The
// workload keeps the batch of one step.
Workload language_modeling(const TrainConfig& config, std::shared_ptr<const Dataset> dataset);

}  // namespace fsdp
