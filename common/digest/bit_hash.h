#pragma once

#include <cstdint>
#include <span>

namespace fsdp {

// A hash of the bits of words, the first of which is number `begin` of more. Those of pieces add up
// to that of the whole, modulo 2^64, wherever it is cut.
uint64_t bit_hash(std::span<const uint16_t> words, int64_t begin);
uint64_t bit_hash(std::span<const uint32_t> words, int64_t begin);

}  // namespace fsdp
