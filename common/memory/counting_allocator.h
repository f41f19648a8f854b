#pragma once

#include <c10/core/Allocator.h>
#include <memory/memory_class.h>

// The CPU allocator that counts every block into live_bytes, in the class of the thread that
// allocates it. It keeps freed blocks of 1 MiB and more for allocations that need at least 8/9 of
// them: the system, if it got them back, would write zeros to their pages again at every use. So a
// tensor of nearly the size of one that comes and goes takes turns with it. Whenever the allocator
// gets or gives up a block, it releases the oldest kept ones until kept and alive blocks together
// are at most 5/4 of the bytes that were ever alive, and at most 64 MiB more than these.
namespace fsdp::counting_allocator {

// Replaces the process's CPU allocator. Call it once, before the first tensor: it does not count
// the blocks of the allocator before it.
void install();

// Counts the block into `cls` from now on. Ignores the blocks of other allocators.
void reclassify(const c10::DataPtr& block, MemoryClass cls);

}  // namespace fsdp::counting_allocator
