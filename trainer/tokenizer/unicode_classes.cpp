#include <tokenizer/unicode_classes.h>
#include <tokenizer/unicode_tables.h>

#include <algorithm>

namespace fsdp {
namespace {

bool contains(std::span<const unicode::Range> ranges, char32_t value) {
  const auto after = std::ranges::upper_bound(ranges, value, {}, &unicode::Range::first);
  return after != ranges.begin() && value <= std::prev(after)->last;
}

bool is_ascii_letter(char32_t value) {
  return (value | 0x20U) >= 'a' && (value | 0x20U) <= 'z';
}

}  // namespace

bool is_letter(char32_t value) {
  return value < 0x80 ? is_ascii_letter(value) : contains(unicode::kLetters, value);
}

bool is_number(char32_t value) {
  return value < 0x80 ? value >= '0' && value <= '9' : contains(unicode::kNumbers, value);
}

bool is_space(char32_t value) {
  if (value < 0x80) return value == ' ' || (value >= '\t' && value <= '\r');
  return contains(unicode::kSpaces, value);
}

bool is_in_a_word(char32_t value) {
  return is_letter(value) || contains(unicode::kInWords, value);
}

bool is_line_break(char32_t value) {
  return value == '\r' || value == '\n';
}

}  // namespace fsdp
