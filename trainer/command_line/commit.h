#pragma once

#include <string>

namespace fsdp {

// Returns the folder of the sources: FSDP_ROOT, which ./fsdp sets, or else the current folder.
std::string source_root();

// Returns the commit of the sources: 40 hexadecimal digits, followed by "-dirty" if files differ
// from that commit. Returns "" outside of a git repository.
std::string current_commit();

}  // namespace fsdp
