#pragma once

#include <string>

namespace fsdp {

// An open file, which the destructor closes.
struct OpenFile {
  explicit OpenFile(int number) : descriptor(number) {}
  ~OpenFile();
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;

  int descriptor;  // file descriptor; -1: this object has no file
};

// Makes a file in memory (memfd_create()). The file has no name in a file system and exists while
// this process, or one that it forks, has it open. A program that such a process executes does not
// inherit it. `name` is shown in /proc. Throws std::system_error.
OpenFile memory_file(const char* name);

// Returns all bytes of the file, from the first one on, without moving the file's position.
// If the file cannot be read, throws std::system_error, whose text begins with `what`.
std::string content_of(const OpenFile& file, const std::string& what);

}  // namespace fsdp
