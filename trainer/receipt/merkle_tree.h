#pragma once

#include <string>
#include <vector>

namespace fsdp {

// Returns the root of the Merkle tree over `leaves`, as 64 hexadecimal digits: the tree hash of RFC
// 6962, section 2.1, with SHA-256.
std::string merkle_root(const std::vector<std::string>& leaves);

}  // namespace fsdp
