#pragma once

#include <cstdint>

namespace fsdp {

// Whether a sanitizer reserves and holds memory of its own, so that a process's memory can be
// neither limited nor measured.
extern const bool kSanitized;

// Limits the memory that this process, and each process that it forks, may allocate, so that
// runaway allocation fails in the test instead of taking the machine down. Returns false and sets
// no limit under a sanitizer.
bool limit_memory(int64_t bytes);

}  // namespace fsdp
