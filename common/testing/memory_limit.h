#pragma once

#include <cstdint>

namespace fsdp {

// Limits what this process, and each that it forks, may allocate: what allocates without end is
// told, and not the machine's end. False, and no limit, where a sanitizer reserves more for itself.
bool limit_memory(int64_t bytes);

}  // namespace fsdp
