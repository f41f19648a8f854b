#pragma once

#include <reproduce/table.h>
#include <reproduce/train_runs.h>

namespace fsdp {

// Trains the small model with the published recipe, in one process, with DDP and with FSDP, on 1 to
// 8 ranks. Returns a table with the losses, parameter sums and hashes of these runs beside the
// published numbers.
Table equivalence_table(const Train& train);

}  // namespace fsdp
