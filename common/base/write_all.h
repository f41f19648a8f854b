#pragma once

#include <string_view>

namespace fsdp {

// Writes all of `text` to an open file. Returns 0 or errno. A reader that has gone (EPIPE) and the
// limit of a file's size (EFBIG) are errors like others, not the end of the process.
int write_all(int file, std::string_view text);

}  // namespace fsdp
