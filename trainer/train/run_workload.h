#pragma once

#include <data/dataset.h>
#include <strategies/workload.h>
#include <train/trainer.h>

#include <memory>

namespace fsdp {

// Returns what the run trains: language modeling, with activations checkpointed as `config` says.
Workload workload_of_run(const TrainConfig& config, const FsdpImplementation& fsdp,
                         std::shared_ptr<const Dataset> dataset);

}  // namespace fsdp
