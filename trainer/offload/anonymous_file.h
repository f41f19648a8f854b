#pragma once

#include <cstdint>
#include <string>

namespace fsdp {

// A file without a name. The file system frees its space when this object closes it, or when the
// process ends in any way.
class AnonymousFile {
 public:
  // Opens the file in `folder` and reserves `bytes` bytes on its disk. `what` says in messages what
  // the bytes are for. Throws std::runtime_error "FOLDER: can't reserve 4096 bytes for ...: No
  // space left on device".
  AnonymousFile(std::string folder, int64_t bytes, const std::string& what);
  ~AnonymousFile();
  AnonymousFile(const AnonymousFile&) = delete;

  const std::string& folder() const { return folder_; }
  int descriptor() const { return descriptor_; }
  // Throws std::runtime_error "FOLDER: DOING: REASON". DOING is the text `doing`; REASON is the
  // text of `error`, a value of errno.
  [[noreturn]] void fail(int error, const std::string& doing) const;

 private:
  std::string folder_;
  int descriptor_;
};

}  // namespace fsdp
