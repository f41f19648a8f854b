#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Stores the lines of a run until the run ends, in a temporary file without a name, so that a long
// run needs no more memory than a short one. If the file can't be made or written, for example
// because the disk is full, the lines that it does not have yet, and all later ones, stay in
// memory.
class LineSpool {
 public:
  LineSpool() = default;
  ~LineSpool();
  LineSpool(const LineSpool&) = delete;
  LineSpool& operator=(const LineSpool&) = delete;

  void add(const std::string& line);  // pass `line` without its newline

  // Calls `take` repeatedly with the next piece of the stored text, until it has passed all lines,
  // each with its newline. A piece may begin and end inside a line.
  void read(const std::function<void(const std::string& piece)>& take) const;
  std::string text() const;

  int64_t bytes_in_memory() const { return static_cast<int64_t>(in_memory_.size()); }

 private:
  int file_{-1};
  bool failed_{};
  int64_t in_file_{};      // number of bytes of the lines in the file
  std::string in_memory_;  // the newest lines, which the file does not have yet
};

}  // namespace fsdp
