#pragma once

#include <c10/core/Allocator.h>
#include <memory/memory_class.h>

#include <cstdint>

// The CPU allocator that counts every block into live_bytes, in the class of the thread that
// allocates it. The memory of freed blocks of 128 KiB and more stays with the process for the next
// ones, of whatever size: the system, if it got it back, would write zeros to its pages again at
// every use. Whenever the allocator gets or gives up a block, it releases what it keeps beyond 5/4
// of the bytes that were ever alive, and beyond keep_at_most().
namespace fsdp::counting_allocator {

// Replaces the process's CPU allocator. Call it once, before the first tensor: it does not count
// the blocks of the allocator before it.
void install();

// How many bytes more than were ever alive the process may take from now on: 256 MiB until a call.
void keep_at_most(int64_t bytes);
void release_kept();  // gives the system all memory of freed blocks
int64_t alive();      // [bytes] alive of this allocator, of which live_bytes counts other ones too

// Counts the block into `cls` from now on. Ignores the blocks of other allocators.
void reclassify(const c10::DataPtr& block, MemoryClass cls);

}  // namespace fsdp::counting_allocator
