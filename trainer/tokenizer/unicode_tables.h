#pragma once

#include <span>

// Facts about code points, which unicode_tables.py writes to unicode_tables.cpp. Every table is
// sorted.
namespace fsdp::unicode {

struct Range {
  char32_t first, last;
};
extern const std::span<const Range> kLetters;  // \p{L}
extern const std::span<const Range> kNumbers;  // \p{N}
extern const std::span<const Range> kSpaces;   // \s
extern const std::span<const Range> kInWords;  // \w without \p{L}

// The canonical combining class of the code points of a range. A code point in no range has the
// class 0.
struct CombiningClass {
  Range range;
  int value;
};
extern const std::span<const CombiningClass> kCombiningClasses;

// The canonical decomposition of a code point into one or two others, which may have
// decompositions too. The syllables of Hangul, which are computed, are not in the table.
struct Decomposition {
  char32_t whole, first, second;  // second: 0 if there is one only
};
extern const std::span<const Decomposition> kDecompositions;
// The code points that have a decomposition into two, and that NFC does not compose again.
extern const std::span<const char32_t> kNotComposed;

}  // namespace fsdp::unicode
