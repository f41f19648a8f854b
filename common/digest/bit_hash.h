#pragma once

#include <cstdint>
#include <span>

namespace fsdp {

// Returns a hash of the bits of `words`, which are a piece of a longer sequence: its words from
// index `begin` on. The hashes of all pieces add up, modulo 2^64, to the hash of the whole
// sequence, however it is cut.
uint64_t bit_hash(std::span<const uint16_t> words, int64_t begin);
uint64_t bit_hash(std::span<const uint32_t> words, int64_t begin);

}  // namespace fsdp
