#pragma once

#include <base/memory_file.h>

#include <cstdint>
#include <string>

namespace fsdp {

// The output of a test program: a file in memory to which the program's processes write.
class Printed {
 public:
  Printed();  // throws std::system_error if the system makes no file in memory

  int number() const { return file_.descriptor; }
  int64_t size() const;  // [bytes]

  // Returns bytes [begin, end) for a report, in lines that all end with a line feed. If there are
  // more than 60 lines or 64 KiB, it has only the first and the last 30 lines; of a line over 500
  // bytes, it has only the beginning. The text counts the lines and bytes that are left out.
  std::string shown(int64_t begin, int64_t end) const;

  // Appends all bytes [begin, end) to the file `path` under the line "== TEST"; appends nothing if
  // the range is empty. Throws std::runtime_error if the file cannot be written.
  void append_to(const std::string& path, const std::string& test, int64_t begin,
                 int64_t end) const;

 private:
  std::string text(int64_t begin, int64_t end) const;  // at most the first 64 KiB of the range

  OpenFile file_;
};

}  // namespace fsdp
