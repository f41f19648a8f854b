#pragma once

#include <reproduce/table.h>
#include <reproduce/train_runs.h>

namespace fsdp {

// Trains the small model with the published recipe. Returns a table with its losses, parameter sums
// and hashes beside the published ones.
Table equivalence_table(const Train& train);

}  // namespace fsdp
