#pragma once

#include <c10/core/DeviceType.h>

#include <string>

namespace fsdp {

// Runs PyTorch's profiler while this object lives. The profiler records the operators of this
// thread and of autograd's threads on the CPU and, on a GPU, kernels and copies (CUPTI). Only one
// Profile may exist in a process at a time.
class Profile {
 public:
  explicit Profile(c10::DeviceType device);
  ~Profile();  // discards the profile if write() was not called
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
