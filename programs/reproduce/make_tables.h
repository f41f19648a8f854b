#pragma once

#include <reproduce/gpt2xl.h>
#include <reproduce/row.h>
#include <reproduce/table.h>
#include <reproduce/train_runs.h>

#include <vector>

namespace fsdp {

// Makes the training runs of a row and returns its tables: those that tables.toml describes, or
// those of the C++ code that row.code names. `full`: the settings of the row gpt2xl. Requires:
// row.has_tables(). Throws std::runtime_error if a run of gpt2xl fails; in all other tables, a
// failed run becomes a line that is not ok.
std::vector<Table> make_tables(const Row& row, TrainRuns& runs, const FullSettings& full);

}  // namespace fsdp
