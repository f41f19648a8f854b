#pragma once

#include <properties/case.h>
#include <strategies/workload.h>

namespace fsdp {

// The case's model, and a loss that depends on every parameter that is used.
Workload workload_of(const Case& c);

}  // namespace fsdp
