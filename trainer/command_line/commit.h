#pragma once

#include <string>

namespace fsdp {

// Returns the folder of this repository's sources: the value of FSDP_ROOT, which the script ./fsdp
// sets, or the current folder if FSDP_ROOT is not set.
std::string source_root();

// Returns the commit of the sources: 40 hexadecimal digits, followed by "-dirty" if files differ
// from that commit. Returns "" outside of a git repository.
std::string current_commit();

}  // namespace fsdp
