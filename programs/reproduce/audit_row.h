#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp {

// Audits the receipts that the runs of the row `name` have left: for each, ./fsdp audit computes a
// drawn microbatch again, in one process. Prints the command of the run, and what audit prints.
// - `folders`: folders that may have the row's results; the first one that has them counts.
// Returns the largest status of the audits: 0 if everything is equal, 1 if an event differs, 2 if a
// receipt can't be audited on this machine. Throws std::runtime_error if no folder has results of
// the row, or if they name no receipt.
int audit_row(const std::string& name, const std::vector<std::filesystem::path>& folders);

}  // namespace fsdp
