#pragma once

#include <torch/torch.h>

#include <cstdint>

// Storage that comes and goes under the tensors that stand on it, on the CPU and on CUDA alike.
// What is freed goes back to the device's allocator in the order of the current stream: work that
// is queued there may still read it, work of other streams has to be waited for before.
namespace fsdp {

// Storage of no bytes, from the device's own allocator; on CUDA from the current device's.
c10::Storage storage_of_no_bytes(c10::DeviceType device);

// Gives `storage` memory of `bytes`, of undefined contents, or frees it with 0.
void resize_storage(const c10::Storage& storage, int64_t bytes);

// A contiguous view of `storage`, which may have no bytes at the moment: as_strided would refuse.
at::Tensor view_of_storage(const c10::Storage& storage, int64_t offset, at::IntArrayRef sizes,
                           at::ScalarType dtype = at::kFloat);

// Whether two contiguous tensors share memory.
bool overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace fsdp
