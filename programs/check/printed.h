#pragma once

#include <base/memory_file.h>

#include <cstdint>
#include <string>

namespace fsdp {

// The output of a test program. The program's processes write it to a file in memory.
class Printed {
 public:
  Printed();  // throws std::system_error if the system can't create a file in memory

  int number() const { return file_.descriptor; }
  int64_t size() const;  // [bytes] how much output the test program has written so far

  // Returns bytes [begin, end) of the output as text for a report, in lines that all end with a
  // line feed. If these are more than 60 lines or 64 KiB, the text has only the first and the last
  // 30 lines; of a line over 500 bytes, it has only the beginning. The text says how many lines and
  // bytes are left out.
  std::string shown(int64_t begin, int64_t end) const;

  // Appends the line "== TEST" and bytes [begin, end) of the output to the file `path`; appends
  // nothing if the range is empty. Throws std::runtime_error if the file cannot be written.
  void append_to(const std::string& path, const std::string& test, int64_t begin,
                 int64_t end) const;

 private:
  // Returns bytes [begin, end) of the output, but at most 64 KiB.
  std::string text(int64_t begin, int64_t end) const;

  OpenFile file_;
};

}  // namespace fsdp
