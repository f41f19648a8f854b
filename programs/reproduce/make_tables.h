#pragma once

#include <reproduce/gpt2xl.h>
#include <reproduce/row.h>
#include <reproduce/table.h>
#include <reproduce/train_runs.h>

#include <vector>

namespace fsdp {

// Makes the runs of a row and returns its tables: those that tables.toml describes, or those of its
// `code`. `full`: how gpt2xl runs. Requires: row.has_tables(). Throws std::runtime_error if the
// runs of gpt2xl fail; in all other tables, a failed run is a line that is not ok.
std::vector<Table> make_tables(const Row& row, TrainRuns& runs, const FullSettings& full);

}  // namespace fsdp
