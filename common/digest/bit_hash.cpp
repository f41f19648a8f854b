#include <digest/bit_hash.h>

namespace fsdp {
namespace {

// Combines each word with its index by an exclusive or, squares the result, and returns the sum of
// the squares, modulo 2^64. SIMD instructions can compute the squares, because both factors have 32
// bits.
template <typename Word>
uint64_t sum_of_squares(std::span<const Word> words, int64_t begin) {
  constexpr uint32_t kStep = 0x9E3779B9;
  uint32_t key = kStep * static_cast<uint32_t>(begin + 1);
  uint64_t sum = 0;
  for (const Word word : words) {
    const uint64_t mixed = word ^ key;
    sum += mixed * mixed;
    key += kStep;
  }
  return sum;
}

}  // namespace

uint64_t bit_hash(std::span<const uint16_t> words, int64_t begin) {
  return sum_of_squares(words, begin);
}

uint64_t bit_hash(std::span<const uint32_t> words, int64_t begin) {
  return sum_of_squares(words, begin);
}

}  // namespace fsdp
