#pragma once

#include <base/memory_file.h>

#include <cstddef>
#include <string>

namespace fsdp {

// Memory that this process shares with the processes that it forks and, if the memory is mapped
// from a file, with all processes that map the file. Memory without a file begins as zeros. The
// system provides each page when it is first touched.
class Mapping {
 public:
  // Throws: std::runtime_error, whose text begins with `purpose`, if the system cannot map `bytes`
  // bytes.
  Mapping(const std::string& purpose, size_t bytes);
  Mapping(const std::string& purpose, size_t bytes, const OpenFile& file);
  // Maps memory whose base() is a multiple of `alignment`, which must be a power of two and at
  // least a page. If the descriptor of `file` is -1, the memory has no file. The system reserves no
  // swap space for this memory and writes it to no core file, so it may be larger than the
  // machine's memory.
  Mapping(const std::string& purpose, size_t bytes, const OpenFile& file, size_t alignment);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* base() const { return base_; }
  size_t bytes() const { return bytes_; }

 private:
  char* base_;
  size_t bytes_;
};

}  // namespace fsdp
