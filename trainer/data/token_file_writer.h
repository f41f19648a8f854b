#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace fsdp {

// Collects token ids in memory, and writes them as a file that TokenFile reads.
class TokenFileWriter {
 public:
  // Requires: all ids are below `vocabulary`. An id has 16 bits in the file if `vocabulary` allows
  // it, otherwise 32.
  explicit TokenFileWriter(int64_t vocabulary);

  void add(std::span<const int32_t> ids);
  // Writes the file, whole or not at all (write_whole_file()). Throws std::runtime_error, which
  // names the file, if it can't be written or if there are more ids than its header can count.
  void write(const std::string& path) const;

  int64_t bits() const { return 8 * bytes_per_id_; }
  int64_t count() const { return static_cast<int64_t>(ids_.size()) / bytes_per_id_; }

 private:
  int64_t bytes_per_id_;
  std::string ids_;  // bytes of the ids that were added, as they will be in the file
};

}  // namespace fsdp
