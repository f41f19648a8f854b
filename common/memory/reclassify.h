#pragma once

#include <c10/core/Allocator.h>
#include <memory/memory_class.h>

namespace fsdp::live_bytes {

// Counts the block into `cls` from now on, whatever class it was allocated in. Ignores a block that
// neither counting_allocator nor meta_blocks nor device_blocks counts.
void reclassify(const c10::DataPtr& block, MemoryClass cls);

}  // namespace fsdp::live_bytes
