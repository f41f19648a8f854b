#pragma once

#include <cstdint>

namespace fsdp {

// Returns the bytes of private mappings that only this process has written to, including pages that
// were swapped out. A page that is shared with the process that forked this one counts as soon as
// this process changes it. First, the allocators of tensors and of C++ release what they keep for
// reuse. Huge pages count as written even if little of them is used, so disable them before.
// Throws std::runtime_error if the kernel does not count such pages.
int64_t written_bytes();

}  // namespace fsdp
