#pragma once

#include <ATen/record_function.h>

#include <memory>
#include <vector>

namespace torch {
class Library;
}

namespace fsdp {

// While this object lives, the meta device has its own kernels for operators that a model's forward
// and backward call:
// - operators for which C++ has no meta kernels: attention, layer norm, relu, where, index_select
//   (the row lookup of an embedding) and the gradient of an embedding;
// - operators whose meta kernels do not allocate what the CPU's kernels allocate, and are replaced:
//   resize_, mean, and add, mul and div of two tensors.
// These kernels allocate, on the meta device, what the CPU's kernels allocate, temporaries
// included, so the bytes of a run on meta are the bytes of a run on the CPU. (Written for LibTorch
// 2.11; PyTorch's own meta kernels for the operators of the first kind are in Python.)
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
