#pragma once

#include <cstdint>

namespace fsdp {

// Returns the bytes of the pages in private mappings that this process has written to and shares
// with no other process, including pages that were swapped out. A page that is shared with the
// process that forked this one counts as soon as this process changes it. Before it counts,
// written_bytes() makes the allocators of tensors and of C++ release the memory that they keep for
// reuse. A huge page counts as a whole even if little of it is used, so disable huge pages before.
// Throws std::runtime_error if /proc/self/smaps does not report Private_Dirty.
int64_t written_bytes();

}  // namespace fsdp
