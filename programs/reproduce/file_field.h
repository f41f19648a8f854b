#pragma once

#include <filesystem>
#include <string>

namespace fsdp {

// Returns what follows `key` and a separator in the first line of `file` that starts with `key`, as
// in /proc/cpuinfo and /etc/os-release; "" if there is no such line.
std::string field_of_file(const std::filesystem::path& file, const std::string& key);

}  // namespace fsdp
