#pragma once

#include <reproduce/gpt2xl.h>
#include <reproduce/row.h>
#include <reproduce/table.h>
#include <reproduce/train_runs.h>

#include <vector>

namespace fsdp {

// Runs what a row needs and makes its tables: those that tables.toml describes, or what its `code`
// names. `full`: how gpt2xl runs. Requires row.has_tables(). Throws std::runtime_error if a row of
// `code` fails as a whole; a line that fails is a line of its table.
std::vector<Table> make_tables(const Row& row, TrainRuns& runs, const FullSettings& full);

}  // namespace fsdp
