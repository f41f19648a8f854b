#pragma once

#include <reproduce/row.h>
#include <reproduce/table.h>
#include <reproduce/train_runs.h>

namespace fsdp {

// Makes the runs of a table with factors. For each comparison, the table has enough lines that any
// two values of two different factors appear together in a line. A line is ok if the first run of
// the comparison is_as_predicted() and all its runs end with the same parameters.
Table run_pairs(const TableOfRow& table, const Train& train);

}  // namespace fsdp
