#pragma once

#include <string_view>

namespace fsdp {

// Writes all of `text` to an open file. Returns 0 or errno. A pipe without a reader (EPIPE) and the
// limit of a file's size (EFBIG) are returned as errors; their signals do not end the process.
// Several threads may write at the same time.
int write_all(int file, std::string_view text);

}  // namespace fsdp
