#pragma once

#include <c10/core/Allocator.h>
#include <memory/memory_class.h>

#include <cstdint>

// The CPU allocator that counts every block into live_bytes, in the MemoryClass that the innermost
// MemoryScope of the allocating thread sets. The memory of freed blocks of 128 KiB and more stays
// with the process for later blocks of at least 128 KiB. If the process returned this memory, the
// system would write zeros to its pages again at the next use. Whenever a block is allocated, or a
// block of 128 KiB and more is freed, the allocator returns memory to the system until kept and
// live bytes together are at most 5/4 of the peak of live bytes, and at most this peak plus the
// limit of keep_at_most().
namespace fsdp::counting_allocator {

// Replaces the process's CPU allocator. Call install() once, before the first tensor is made:
// blocks of the previous allocator are not counted.
void install();

// Sets how many bytes of freed blocks may be kept beyond the peak of live bytes; 256 MiB by
// default.
void keep_at_most(int64_t bytes);
void release_kept();  // returns all memory of freed blocks to the system
int64_t alive();      // number of bytes in live blocks of this allocator

// Moves the live bytes of `block` from their MemoryClass to `cls`. Does nothing if another
// allocator allocated the block.
void reclassify(const c10::DataPtr& block, MemoryClass cls);

}  // namespace fsdp::counting_allocator
