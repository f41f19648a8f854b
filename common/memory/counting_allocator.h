#pragma once

#include <c10/core/Allocator.h>
#include <memory/memory_class.h>

// The CPU allocator that counts every block into live_bytes, in the class of the thread that
// allocates it. It keeps freed blocks of 1 MiB and more for an allocation of the same size: the
// system, if it got them back, would write zeros to their pages again at every use. Whenever it
// allocates or frees, it releases the oldest kept blocks until kept and alive bytes together are at
// most 5/4 of the most that was ever alive, and at most 128 MiB more than that.
namespace fsdp::counting_allocator {

// Replaces the process's CPU allocator. Call it once, before the first tensor: it does not count
// the blocks of the allocator before it.
void install();

// Counts the block into `cls` from now on. Ignores the blocks of other allocators.
void reclassify(const c10::DataPtr& block, MemoryClass cls);

}  // namespace fsdp::counting_allocator
