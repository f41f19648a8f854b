#pragma once

#include <cstdint>

namespace fsdp {

// True if the program is built with a sanitizer. A sanitizer reserves memory of its own, so the
// memory of the process can be neither limited nor measured.
extern const bool kSanitized;

// Limits the memory that this process, and each process that it forks, may allocate, so that
// runaway allocation fails in the test instead of taking the machine down. Returns whether the
// limit is set; under a sanitizer it is not.
bool limit_memory(int64_t bytes);

}  // namespace fsdp
