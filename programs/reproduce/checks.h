#pragma once

#include <reproduce/train_result.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// Returns the names of the checks. A check is a condition on the cells of a line; a table in
// tables.toml selects it with the key `check`:
// - "solved": `solved at` is a step;
// - "within bound": `off / on` is at most 5 % above `bound`;
// - "below DDP if it saves more": `peak` is below `DDP` exactly if `saves` is larger than `needs`.
std::vector<std::string> names_of_checks();

// Returns the columns that the check reads; no column if `check` is "".
std::vector<std::string> columns_of_check(const std::string& check);

using Cells = std::map<std::string, std::string>;  // column -> cell

// Returns whether the cells pass this check; nothing if they don't allow a verdict, because other
// programs disturbed the measurement. Throws std::out_of_range if a column is missing.
std::optional<bool> passes(const std::string& check, const Cells& cells);

// Returns whether the run's live bytes and its bytes of traffic are exactly as predicted.
bool is_as_predicted(const TrainResult& run);

}  // namespace fsdp
