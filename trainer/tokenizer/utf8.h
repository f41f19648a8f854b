#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fsdp {

// The value that stands for bytes that are not valid UTF-8. It is larger than every code point.
inline constexpr char32_t kInvalid = 0x110000;

// A code point of a text, or bytes that are not valid UTF-8.
struct CodePoint {
  char32_t value;  // kInvalid for bytes that are not valid UTF-8
  // Number of bytes of the code point; for kInvalid, the number of invalid bytes that one U+FFFD
  // replaces.
  size_t bytes;
};

// Decodes the code point that begins at offset `at` of the text; `at` must be less than
// text.size().
CodePoint code_point_at(std::string_view text, size_t at);

// Returns the offset of the first byte of the code point that ends at offset `end`, which must be
// more than 0. Returns end - 1 if the bytes before `end` are not a valid code point.
size_t start_of_last(std::string_view text, size_t end);

void append_utf8(std::string& text, char32_t value);

// Returns the number of bytes at the end of `text` that are the beginning of an incomplete code
// point.
size_t unfinished_bytes(std::string_view text);

}  // namespace fsdp
