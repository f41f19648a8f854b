#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fsdp {

// What end_of_log() finds in the last lines of a file that --log writes.
struct LogEnd {
  bool is_log{true};  // whether the last lines are lines as --log writes them
  // The step of the last line that names a step; empty: no line does.
  std::optional<int64_t> last_step;
};

// Reads the last lines of the plain file `path`. A file that is empty or missing counts as a log
// without lines.
LogEnd end_of_log(const std::string& path);

// Removes the half line that a killed run may have left at the end of its log, the file `path`.
void remove_half_a_line(const std::string& path);

}  // namespace fsdp
