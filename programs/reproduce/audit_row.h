#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp {

// Audits the receipts that the training runs of the row `name` have left: for each receipt, ./fsdp
// audit draws a microbatch, computes it again in one process, and compares. Prints the command of
// each run, and below it the output of ./fsdp audit.
// - `folders`: folders that may have the row's results; the first one that has them is used.
// Returns 1 if an event differs; otherwise 2 if a receipt can't be audited here or a run failed;
// otherwise 0. Throws std::runtime_error if no folder has results of the row, if the results can't
// be read, or if they name no receipt.
int audit_row(const std::string& name, const std::vector<std::filesystem::path>& folders);

}  // namespace fsdp
