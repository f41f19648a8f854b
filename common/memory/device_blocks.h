#pragma once

#include <memory/memory_class.h>

#include <cstdint>

// Counts the live bytes of a device with an allocator of another library. The code that observes
// this allocator reports the addresses of its blocks with allocated() and freed(). A block is
// counted into live_bytes, in the class of the thread that reports it.
namespace fsdp::device_blocks {

void allocated(const void* block, int64_t bytes);  // throws std::invalid_argument if bytes < 0
void freed(const void* block);  // ignores a block that was not reported as allocated

// Counts the block into `cls` from now on. Ignores a block that was not reported as allocated.
void reclassify(const void* block, MemoryClass cls);

}  // namespace fsdp::device_blocks
