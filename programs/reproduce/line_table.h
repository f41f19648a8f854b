#pragma once

#include <reproduce/row.h>
#include <reproduce/table.h>
#include <reproduce/train_runs.h>

namespace fsdp {

// Runs the lines of a table and fills its columns.
// - A line that runs train is ok if is_as_predicted(), if it ends with the parameters that
//   `same_parameters` asks for, and if it passes the table's check.
// - A line that runs another program, or nothing, has no verdict.
// - A line whose run fails is not ok, and a note says why; unless it may fail: then it has no
//   verdict.
// - A line that needs more cores or peers than there are is not run and has no verdict.
Table run_lines(const TableOfRow& table, const Train& train, const Output& output);

}  // namespace fsdp
