#pragma once

#include <properties/random_training.h>
#include <strategies/workload.h>

namespace fsdp {

// Returns the model of `c` and a loss that depends on every parameter that the model uses.
Workload workload_of(const RandomTraining& c);

}  // namespace fsdp
