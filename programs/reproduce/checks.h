#pragma once

#include <reproduce/train_result.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// Returns the names of the checks. A check is a condition on the cells of a line; a table in
// tables.toml selects it with the key `check`. Names in backticks are columns:
// - "solved": `solved at` is a step, not "never";
// - "within bound": `off / on` is at most 5 % above `bound`;
// - "below DDP if it saves more": `peak` is below `DDP` exactly if `saves` is larger than `needs`.
std::vector<std::string> names_of_checks();

// Returns the headings of the columns whose cells the check with the name `check` reads; no heading
// if `check` is "".
std::vector<std::string> columns_of_check(const std::string& check);

using Cells = std::map<std::string, std::string>;  // heading of a column -> text of its cell

// Returns whether the cells of a line pass the check `check`. Returns nothing if there can be no
// verdict, because other programs disturbed the measurement. Throws std::out_of_range if the cells
// lack a column that the check reads.
std::optional<bool> passes(const std::string& check, const Cells& cells);

// Returns whether the live bytes and the bytes of the collectives that a run of train measured are
// exactly those that it predicted.
bool is_as_predicted(const TrainResult& run);

}  // namespace fsdp
