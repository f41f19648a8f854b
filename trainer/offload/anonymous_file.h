#pragma once

#include <cstdint>
#include <string>

namespace fsdp {

// A file that has no name: its bytes are free again when it is closed, or when the process ends in
// any way.
class AnonymousFile {
 public:
  // Reserves `bytes` in `folder` for `what`. Throws std::runtime_error "FOLDER: what is wrong", for
  // example if the disk is too full.
  AnonymousFile(std::string folder, int64_t bytes, const std::string& what);
  ~AnonymousFile();
  AnonymousFile(const AnonymousFile&) = delete;

  const std::string& folder() const { return folder_; }
  int descriptor() const { return descriptor_; }
  [[noreturn]] void fail(int error, const std::string& doing) const;

 private:
  std::string folder_;
  int descriptor_;
};

}  // namespace fsdp
