#pragma once

#include <ATen/record_function.h>

#include <memory>
#include <vector>

namespace torch {
class Library;
}

namespace fsdp {

// While this object lives, the meta device has the operators of LibTorch that a model's forward and
// backward call on the CPU and for which C++ has no meta kernels: attention, layer norm, relu, the
// row lookup and its gradient. These kernels allocate, on the meta device, what the CPU's kernels
// allocate, temporaries included, so the bytes of a run on meta are the bytes of a run on the CPU.
// (Written for LibTorch 2.11; PyTorch's own meta kernels for these operators are in Python.)
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
