#pragma once

#include <data/dataset.h>
#include <strategies/workload.h>
#include <train/trainer.h>

#include <memory>

namespace fsdp {

// Returns the workload of the run: language modeling, with activation checkpointing as `config`
// says.
Workload workload_of_run(const TrainConfig& config, const FsdpImplementation& fsdp,
                         std::shared_ptr<const Dataset> dataset);

}  // namespace fsdp
