#pragma once

#include <cstdint>

namespace fsdp {

// Limits the memory that this process, and each process that it forks, may allocate, so that
// runaway allocation fails in the test instead of taking the machine down. Returns false and sets
// no limit under a sanitizer, which itself reserves more.
bool limit_memory(int64_t bytes);

}  // namespace fsdp
