#pragma once

#include <reproduce/row.h>

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp {

// Returns the text of --list: the rows in 100 columns, with the last verdict of each. `results`:
// the folders that may have a row's last results; the first folder that has them counts.
std::string list(const Rows& rows, const std::vector<std::filesystem::path>& results);

}  // namespace fsdp
