#pragma once

#include <c10/core/Allocator.h>
#include <memory/memory_class.h>

#include <cstdint>

// The CPU allocator that counts every block into live_bytes, in the class of the thread that
// allocates it. The memory of freed blocks of 128 KiB and more stays with the process for later
// blocks of at least 128 KiB. If the process returned this memory, the system would write zeros to
// its pages again at the next use. Whenever a block is allocated, or a block of 128 KiB and more is
// freed, the allocator returns memory to the system until kept and live bytes together are at most
// 5/4 of the peak of live bytes, and at most this peak plus keep_at_most().
namespace fsdp::counting_allocator {

// Replaces the process's CPU allocator. Call it once, before the first tensor: it does not count
// the blocks of the allocator before it.
void install();

// Sets how many bytes of freed blocks may be kept beyond the peak of live bytes; 256 MiB by
// default.
void keep_at_most(int64_t bytes);
void release_kept();  // returns all memory of freed blocks to the system
int64_t alive();      // [bytes] alive in blocks of this allocator; live_bytes also counts others

// Counts the block into `cls` from now on. Ignores the blocks of other allocators.
void reclassify(const c10::DataPtr& block, MemoryClass cls);

}  // namespace fsdp::counting_allocator
