#pragma once

#include <base/torch.h>

#include <cstdint>

// Storage whose memory is freed and allocated again while tensors use the storage, on the CPU and
// on CUDA. On CUDA, freed memory returns to the allocator in the order of the current stream: work
// that is queued on this stream may still read it. Before you free memory that other streams use,
// wait for their work.
namespace fsdp {

// Returns a storage of 0 bytes that uses the device's default allocator; on CUDA, that of the
// current device.
c10::Storage storage_of_no_bytes(c10::DeviceType device);

// Replaces the memory of `storage` by `bytes` of new memory with undefined contents. If `bytes` is
// 0, frees the memory; a guarded storage (storage_guard.h) then still reports its full number of
// bytes.
void resize_storage(const c10::Storage& storage, int64_t bytes);

// Returns a contiguous view of `storage` from element `offset` on. Unlike as_strided(), it works
// while `storage` has 0 bytes.
at::Tensor view_of_storage(const c10::Storage& storage, int64_t offset, at::IntArrayRef sizes,
                           at::ScalarType dtype = at::kFloat);

// Returns whether two contiguous tensors share memory.
bool overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace fsdp
