#pragma once

#include <c10/core/DeviceType.h>

#include <string>

namespace fsdp {

// PyTorch's profiler over what this thread and autograd's do while the object lives: the operators
// of the CPU, and of a GPU its kernels and copies (CUPTI). One at a time in a process.
class Profile {
 public:
  explicit Profile(c10::DeviceType device);
  ~Profile();  // drops what was not written
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Waits for the GPU, ends the profile, and writes it to `path` as a trace for Perfetto, in which
  // a kernel has the category "kernel". Throws std::runtime_error if it can't be written.
  void write(const std::string& path);

 private:
  c10::DeviceType device_;
  bool runs_{true};
};

}  // namespace fsdp
