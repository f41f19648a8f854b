#pragma once

#include <reproduce/row.h>
#include <reproduce/table.h>
#include <reproduce/train_runs.h>

namespace fsdp {

// Runs the lines of a table and fills its columns.
// - A line that runs train is ok if is_as_predicted(), if it ends with the parameters that
//   `same_parameters` asks for, and if it passes the table's check.
// - A line that runs another program, or nothing, has no verdict.
// - A line whose run fails is not ok, or has no verdict if it may fail. A note has the error.
// - A line is not run and has no verdict if the machine has too few cores for it, or if it needs
//   peers and `./fsdp setup --peers` has not installed them.
Table run_lines(const TableOfRow& table, const Train& train, const Output& output);

}  // namespace fsdp
