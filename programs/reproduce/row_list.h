#pragma once

#include <reproduce/row.h>

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp {

// Returns the text of ./fsdp reproduce --list: the rows in lines of at most 100 columns, each with
// the verdict of its last run. `results`: folders that may have a row's results; the first one that
// has them is used.
std::string list(const Rows& rows, const std::vector<std::filesystem::path>& results);

}  // namespace fsdp
