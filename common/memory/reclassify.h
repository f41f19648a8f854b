#pragma once

#include <c10/core/Allocator.h>
#include <memory/memory_class.h>

namespace fsdp::live_bytes {

// Counts the block into `cls` from now on, whatever class it was allocated in. Ignores a block of
// any other allocator than counting_allocator and those that device_blocks counts.
void reclassify(const c10::DataPtr& block, MemoryClass cls);

}  // namespace fsdp::live_bytes
