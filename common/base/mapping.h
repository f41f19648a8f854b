#pragma once

#include <base/memory_file.h>

#include <cstddef>
#include <string>

namespace fsdp {

// Memory that is shared with the processes which this one forks, and, if it is mapped from a file,
// with all that map the file. Zeroed. Physical memory is taken as it is touched.
class Mapping {
 public:
  // Throws std::runtime_error, beginning with `purpose`, when the system refuses.
  Mapping(const std::string& purpose, size_t bytes);
  Mapping(const std::string& purpose, size_t bytes, const OpenFile& file);
  // Without a file if the file's descriptor is -1. The base is a multiple of `alignment`, which is
  // a power of two of at least a page. No swap space is reserved, and no core file has it: what is
  // mapped may be larger than the machine's memory.
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
