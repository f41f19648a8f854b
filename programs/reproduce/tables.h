#pragma once

#include <reproduce/table.h>
#include <reproduce/train_runs.h>

#include <string>
#include <vector>

namespace fsdp {

using Tables = std::vector<Table>;

// Tables that rows.cpp does not describe. Each trains through `train`, which shares the runs that
// several need.

// Losses, parameter sums and hashes of the published recipe on the small model, beside those that
// were published.
Table equivalence_table(const Train& train);

}  // namespace fsdp
