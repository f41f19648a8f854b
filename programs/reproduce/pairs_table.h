#pragma once

#include <reproduce/row.h>
#include <reproduce/table.h>
#include <reproduce/train_runs.h>

namespace fsdp {

// Runs, for every comparison of a table, as many lines as needed so that every two values of every
// two factors meet. A line is ok if the run that it shows is_as_predicted() and ends with the
// parameters of the runs that it is compared with.
Table run_pairs(const TableOfRow& table, const Train& train);

}  // namespace fsdp
