#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Lines that wait for the end of a run in a file without a name, so that a long run needs no more
// memory than a short one. If there is no room for the file, or none any more, lines stay in
// memory.
class LineSpool {
 public:
  LineSpool() = default;
  ~LineSpool();
  LineSpool(const LineSpool&) = delete;
  LineSpool& operator=(const LineSpool&) = delete;

  void add(const std::string& line);  // without its newline

  // Calls `take` with the text of all lines, each with its newline, in pieces.
  void read(const std::function<void(const std::string& piece)>& take) const;
  std::string text() const;

  int64_t bytes_in_memory() const { return static_cast<int64_t>(in_memory_.size()); }

 private:
  int file_{-1};
  bool failed_{};
  int64_t in_file_{};      // [bytes]
  std::string in_memory_;  // what follows on them
};

}  // namespace fsdp
