#pragma once

#include <c10/core/Allocator.h>
#include <memory/memory_class.h>

namespace fsdp::live_bytes {

// Moves the live bytes of `block` from their MemoryClass to `cls`. Does nothing if neither
// counting_allocator nor meta_blocks nor device_blocks counts the block.
void reclassify(const c10::DataPtr& block, MemoryClass cls);

}  // namespace fsdp::live_bytes
