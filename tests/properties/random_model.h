#pragma once

#include <properties/random_training.h>
#include <strategies/workload.h>

namespace fsdp {

// The case's model, and a loss that depends on every parameter that is used.
Workload workload_of(const RandomTraining& c);

}  // namespace fsdp
