#pragma once

#include <string>

namespace fsdp {

// Writes `path` so that it appears whole or not at all: under another name first. Throws
// std::runtime_error "PATH: can't be written".
void write_whole_file(const std::string& path, const std::string& content);

// Whether a file could be made there now: its folder exists and is writable, and it is no folder.
bool can_be_written(const std::string& path);

}  // namespace fsdp
