#pragma once

#include <ATen/record_function.h>

#include <memory>
#include <vector>

namespace torch {
class Library;
}

namespace fsdp {

// While it lives, the meta device has the operators of LibTorch that a model's forward and backward
// call on the CPU and that C++ has no meta kernels for: attention, layer norm, relu, the row lookup
// and its gradient. They allocate, on the meta device, what the CPU's kernels allocate, temporaries
// included; so the bytes of a run on meta are those of a run on the CPU. (LibTorch 2.11; Python's
// meta kernels are in Python.)
class [[nodiscard]] MetaKernels {
 public:
  MetaKernels();
  ~MetaKernels();
  MetaKernels(const MetaKernels&) = delete;

 private:
  std::vector<std::unique_ptr<torch::Library>> libraries_;
  at::CallbackHandle nodes_{};
};

}  // namespace fsdp
