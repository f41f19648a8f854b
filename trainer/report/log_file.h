#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fsdp {

// The contents of the last lines of a file of --log.
struct LogEnd {
  bool is_log{true};                 // false: its last lines are not those of a log
  std::optional<int64_t> last_step;  // the step of the last line that has one
};

// Reads the last lines of the plain file `path`. A file that is empty or missing is an empty log.
LogEnd end_of_log(const std::string& path);

// Removes the half line that a killed run has left at the end of its log.
void remove_half_a_line(const std::string& path);

}  // namespace fsdp
