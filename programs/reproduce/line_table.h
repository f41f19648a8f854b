#pragma once

#include <reproduce/row.h>
#include <reproduce/table.h>
#include <reproduce/train_runs.h>

namespace fsdp {

// Runs the lines that tables.toml describes for a table, and returns the table with their results.
// - A line that runs train is ok if is_as_predicted() is true; if, with `same_parameters`, it ends
//   with the same parameters as the nearest line above without this key; and if it passes the
//   table's check.
// - A line that runs another program, or nothing, has no verdict.
// - A line whose run fails is not ok; if tables.toml allows it to fail, it has no verdict. The
//   error is a note below the table.
// - A line is not run, and has no verdict, if the machine has too few cores for it, or if it needs
//   PyTorch to compare with and `./fsdp setup --peers` has not installed it.
Table run_lines(const TableOfRow& table, const Train& train, const Output& output);

}  // namespace fsdp
