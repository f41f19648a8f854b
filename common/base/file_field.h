#pragma once

#include <filesystem>
#include <string>

namespace fsdp {

// Returns the text after `key` and a separator (":", "=" or space), without quotes around it, in
// the first line of `file` that starts with `key`; "" if there is no such line. Reads files such as
// /proc/cpuinfo and /etc/os-release.
std::string field_of_file(const std::filesystem::path& file, const std::string& key);

}  // namespace fsdp
