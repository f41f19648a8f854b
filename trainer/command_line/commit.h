#pragma once

#include <string>

namespace fsdp {

// The folder of the sources: FSDP_ROOT, which ./fsdp sets, or the current one.
std::string source_root();

// The commit of the sources, 40 hexadecimal digits, with "-dirty" after it if files differ from it.
// Empty outside of a git repository.
std::string current_commit();

}  // namespace fsdp
