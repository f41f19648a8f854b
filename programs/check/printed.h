#pragma once

#include <base/memory_file.h>

#include <cstdint>
#include <string>

namespace fsdp {

// What a test program prints: a file in memory, to which its processes write.
class Printed {
 public:
  Printed();  // throws std::system_error if the system makes no file in memory

  int number() const { return file_.descriptor; }
  int64_t size() const;  // [bytes]

  // For a report, bytes [begin, end) in whole lines, the last one ended. Of more than 60 lines only
  // the first and the last 30, and of a long line only its beginning; what is left out is counted.
  std::string shown(int64_t begin, int64_t end) const;

  // Appends bytes [begin, end), all of them, to the file `path` under the line "== TEST"; nothing
  // if there are none. Throws std::runtime_error if the file cannot be written.
  void append_to(const std::string& path, const std::string& test, int64_t begin,
                 int64_t end) const;

 private:
  std::string text(int64_t begin, int64_t end) const;  // at most 64 KiB of it

  OpenFile file_;
};

}  // namespace fsdp
