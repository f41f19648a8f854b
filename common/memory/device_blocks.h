#pragma once

#include <memory/live_bytes.h>

#include <cstdint>

// Live bytes of a device whose allocator is not ours and tells of its blocks by their addresses.
// They are counted into live_bytes as the CPU's are: into the class of the MemoryScope of the
// thread that allocates.
namespace fsdp::device_blocks {

void allocated(const void* block, int64_t bytes);
void freed(const void* block);  // nothing if it was allocated before anyone told

// Counts a block into `cls` from now on; nothing if it is not known.
void reclassify(const void* block, MemoryClass cls);

}  // namespace fsdp::device_blocks
