#pragma once

#include <string>

namespace fsdp {

// A file that is open while this object lives.
struct OpenFile {
  explicit OpenFile(int number) : descriptor(number) {}
  ~OpenFile();
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;

  int descriptor;  // -1: no file
};

// Makes a file in memory. It has no name in a file system, and exists while a process has it open:
// this one, or one that it forks; a program that is executed does not inherit it. `name` is shown
// in /proc. Throws std::system_error.
OpenFile memory_file(const char* name);

// All bytes of the file. It does not move the file's position. Throws std::system_error, whose text
// begins with `what`.
std::string content_of(const OpenFile& file, const std::string& what);

}  // namespace fsdp
