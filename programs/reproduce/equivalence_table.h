#pragma once

#include <reproduce/table.h>
#include <reproduce/train_runs.h>

namespace fsdp {

// Losses, parameter sums and hashes of the published recipe on the small model, beside those that
// were published.
Table equivalence_table(const Train& train);

}  // namespace fsdp
