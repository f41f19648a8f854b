#pragma once

#include <array>
#include <cstdint>

// The files of token ids that llm.c writes: a header, then the ids, unsigned and in the byte order
// of the machine.
namespace fsdp {

// The first two 32-bit numbers in the header of a token file. kOf16Bits is the pair of a file whose
// ids have 16 bits, kOf32Bits that of a file whose ids have 32 bits.
struct TokenFileKind {
  int32_t magic, version;
};
inline constexpr TokenFileKind kOf16Bits{20240520, 1}, kOf32Bits{20240801, 7};

// The header of a token file, as 32-bit numbers: magic, version, number of ids, then zeros.
using TokenFileHeader = std::array<int32_t, 256>;

}  // namespace fsdp
