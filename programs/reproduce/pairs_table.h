#pragma once

#include <reproduce/row.h>
#include <reproduce/table.h>
#include <reproduce/train_runs.h>

namespace fsdp {

// Makes the runs of a table of tables.toml that has factors: options with several values each. For
// each comparison, the table has enough lines that any two values of two different factors appear
// together in a line. A line is ok if is_as_predicted() is true for the first run of the
// comparison, and if all runs of the comparison end with the same parameters.
Table run_pairs(const TableOfRow& table, const Train& train);

}  // namespace fsdp
