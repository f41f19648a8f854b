#pragma once

#include <base/torch.h>

#include <cstdint>

// Storage whose memory is freed and allocated again while tensors stand on it, on the CPU and on
// CUDA. On CUDA, freed memory returns to the allocator in the order of the current stream: work
// that is queued on this stream may still read it; wait first for work on other streams.
namespace fsdp {

// A storage of 0 bytes from the device's own allocator; on CUDA from the current device's.
c10::Storage storage_of_no_bytes(c10::DeviceType device);

// Gives `storage` new memory of `bytes`, with undefined contents. 0 frees its memory; of guarded
// storage (storage_guard.h) the number of bytes then stays.
void resize_storage(const c10::Storage& storage, int64_t bytes);

// A contiguous view of `storage` from element `offset` on. `storage` may have 0 bytes at the time,
// which as_strided() refuses.
at::Tensor view_of_storage(const c10::Storage& storage, int64_t offset, at::IntArrayRef sizes,
                           at::ScalarType dtype = at::kFloat);

// Whether two contiguous tensors share memory.
bool overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace fsdp
