#pragma once

#include <cstdint>
#include <string>

namespace fsdp {

// A file without a name. Its space is free again when it is closed, or when the process ends in any
// way.
class AnonymousFile {
 public:
  // Reserves `bytes` in `folder`. `what` names their purpose in messages. Throws std::runtime_error
  // "FOLDER: can't reserve 4096 bytes for ...: No space left on device".
  AnonymousFile(std::string folder, int64_t bytes, const std::string& what);
  ~AnonymousFile();
  AnonymousFile(const AnonymousFile&) = delete;

  const std::string& folder() const { return folder_; }
  int descriptor() const { return descriptor_; }
  // Throws std::runtime_error "FOLDER: `doing`: ", followed by the text of the errno `error`.
  [[noreturn]] void fail(int error, const std::string& doing) const;

 private:
  std::string folder_;
  int descriptor_;
};

}  // namespace fsdp
