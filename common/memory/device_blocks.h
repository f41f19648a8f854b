#pragma once

#include <memory/memory_class.h>

#include <cstdint>

// Counts the live bytes of a device whose allocator belongs to another library, such as PyTorch's
// CUDA allocator. The code that observes this allocator reports the addresses of its blocks with
// allocated() and freed(). A block is counted into live_bytes, in the MemoryClass that the
// innermost MemoryScope of the reporting thread sets.
namespace fsdp::device_blocks {

// allocated() throws std::invalid_argument if bytes < 0. freed() does nothing if `block` was not
// reported as allocated.
void allocated(const void* block, int64_t bytes);
void freed(const void* block);

// Moves the live bytes of `block` from their MemoryClass to `cls`. Does nothing if the block was
// not reported as allocated.
void reclassify(const void* block, MemoryClass cls);

}  // namespace fsdp::device_blocks
