#pragma once

#include <c10/core/DeviceType.h>

#include <string>

namespace fsdp {

// Runs PyTorch's profiler while the object lives. It records the operators of this thread and of
// autograd's threads on the CPU and, on a GPU, kernels and copies (CUPTI). A process can have one
// Profile at a time.
class Profile {
 public:
  explicit Profile(c10::DeviceType device);
  ~Profile();  // discards a profile that was not written
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Waits for the GPU, ends the profile, and writes it to `path` as a trace for Perfetto, in which
  // kernels have the category "kernel". Throws std::runtime_error if the file can't be written.
  void write(const std::string& path);

 private:
  c10::DeviceType device_;
  bool runs_{true};
};

}  // namespace fsdp
