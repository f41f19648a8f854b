#pragma once

#include <array>
#include <cstdint>

// The files of token ids that llm.c writes: a header, then the ids, unsigned and in the byte order
// of the machine.
namespace fsdp {

// The first two words of the header of a token file. They tell how many bits an id has in the file.
struct TokenFileKind {
  int32_t magic, version;
};
inline constexpr TokenFileKind kOf16Bits{20240520, 1}, kOf32Bits{20240801, 7};

// The words of the header: magic, version, number of ids, then zeros.
using TokenFileHeader = std::array<int32_t, 256>;

}  // namespace fsdp
