#pragma once

#include <reproduce/row.h>

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp {

// What --list prints: the rows in 100 columns, with the last verdict of each. `results`: the
// folders that may have the last results of a row; the first one that has them counts.
std::string list(const Rows& rows, const std::vector<std::filesystem::path>& results);

}  // namespace fsdp
