#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace fsdp {

// The SHA-256 digest (FIPS 180-4) of bytes that come in parts.
class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);

  // The digest of all bytes so far, as 64 lower-case hexadecimal digits; update() may go on after
  // it.
  std::string hex() const;

 private:
  void compress(const std::byte* block);

  // The first 32 bits of the fractional parts of the square roots of the first eight primes.
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> block_{};  // the part of a block that is not full yet
  size_t filled_{};                    // [bytes] of block_
  uint64_t length_{};                  // [bytes] in all
};

}  // namespace fsdp
