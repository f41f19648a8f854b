#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// A file that has no name: its bytes are free again when it is closed, or when the process ends,
// however that ends.
class NamelessFile {
 public:
  // Reserves `bytes` in `folder` for `what`. Throws std::runtime_error "FOLDER: what is wrong", if
  // the disk is too full for example.
  NamelessFile(std::string folder, int64_t bytes, const std::string& what);
  ~NamelessFile();
  NamelessFile(const NamelessFile&) = delete;

  const std::string& folder() const { return folder_; }
  int descriptor() const { return descriptor_; }
  [[noreturn]] void fail(int error, const std::string& doing) const;

 private:
  std::string folder_;
  int descriptor_;
};

// Copies of tensors on the CPU in such a file, mapped; it is closed with the last of them. An
// undefined one stays undefined. Throws what the constructor throws, and std::runtime_error if the
// file could not be written.
std::vector<at::Tensor> copies_in_file(const std::string& folder,
                                       const std::vector<at::Tensor>& tensors,
                                       const std::string& what);

}  // namespace fsdp
