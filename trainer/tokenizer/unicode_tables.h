#pragma once

#include <span>

// Tables of facts about code points. The course's script unicode_tables.py writes them to
// unicode_tables.cpp. Every table is sorted.
namespace fsdp::unicode {

struct Range {
  char32_t first, last;
};
extern const std::span<const Range> kLetters;  // the class \p{L}
extern const std::span<const Range> kNumbers;  // the class \p{N}
extern const std::span<const Range> kSpaces;   // the class \s
extern const std::span<const Range> kInWords;  // the class \w without \p{L}

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
  char32_t whole, first, second;  // `second` is 0 if `whole` decomposes into one code point
};
extern const std::span<const Decomposition> kDecompositions;
// The code points that decompose into two code points which NFC does not compose again.
extern const std::span<const char32_t> kNotComposed;

}  // namespace fsdp::unicode
