#include <digest/sha256.h>
#include <receipt/merkle_tree.h>

#include <bit>
#include <span>

namespace fsdp {
namespace {

Sha256 hash_of(const std::string& bytes) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(bytes)));
  return hash;
}

// Returns the root of the Merkle tree over `leaves`, of which there is at least one. The hashed
// bytes begin with 0 for a leaf and with 1 for an inner node, so no inner node has the hash of a
// leaf.
Sha256 root_of(std::span<const std::string> leaves) {
  if (leaves.size() == 1) return hash_of('\0' + leaves[0]);
  const size_t left = std::bit_floor(leaves.size() - 1);
  return hash_of('\1' + root_of(leaves.first(left)).bytes() +
                 root_of(leaves.subspan(left)).bytes());
}

}  // namespace

std::string merkle_root(const std::vector<std::string>& leaves) {
  return (leaves.empty() ? hash_of("") : root_of(leaves)).hex();
}

}  // namespace fsdp
