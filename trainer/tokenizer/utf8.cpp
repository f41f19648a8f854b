#include <tokenizer/utf8.h>

#include <algorithm>

namespace fsdp {
namespace {

// What the first byte of a UTF-8 sequence says about the sequence.
struct Lead {
  size_t bytes;  // length of the sequence; 0 if no sequence begins with this byte
  char32_t bits;
  unsigned char low, high;  // range of the second byte of the sequence
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, byte, 0, 0};
  if (byte < 0xC2 || byte > 0xF4) return {0, 0, 0, 0};
  if (byte < 0xE0) return {2, byte & 0x1FU, 0x80, 0xBF};
  // The ranges of the second byte exclude overlong codes, surrogates, and values above U+10FFFF.
  if (byte < 0xF0)
    return {3, byte & 0xFU, static_cast<unsigned char>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(byte == 0xED ? 0x9F : 0xBF)};
  return {4, byte & 7U, static_cast<unsigned char>(byte == 0xF0 ? 0x90 : 0x80),
          static_cast<unsigned char>(byte == 0xF4 ? 0x8F : 0xBF)};
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t at) {
  Lead lead = lead_of(static_cast<unsigned char>(text[at]));
  if (lead.bytes == 0) return {kInvalid, 1};
  char32_t value = lead.bits;
  for (size_t i = 1; i < lead.bytes; ++i) {
    const auto byte = static_cast<unsigned char>(at + i < text.size() ? text[at + i] : 0);
    if (byte < lead.low || byte > lead.high) return {kInvalid, i};
    value = value << 6 | (byte & 0x3FU);
    lead.low = 0x80;
    lead.high = 0xBF;
  }
  return {value, lead.bytes};
}

size_t start_of_last(std::string_view text, size_t end) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(4, end); ++bytes) {
    const CodePoint last = code_point_at(text.substr(0, end), end - bytes);
    if (last.value != kInvalid && last.bytes == bytes) return end - bytes;
  }
  return end - 1;
}

void append_utf8(std::string& text, char32_t value) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80U | (value >> shift & 0x3FU)); };
  if (value < 0x80) {
    text += static_cast<char>(value);
  } else if (value < 0x800) {
    text += static_cast<char>(0xC0U | value >> 6);
    tail(0);
  } else if (value < 0x10000) {
    text += static_cast<char>(0xE0U | value >> 12);
    tail(6), tail(0);
  } else {
    text += static_cast<char>(0xF0U | value >> 18);
    tail(12), tail(6), tail(0);
  }
}

size_t unfinished_bytes(std::string_view text) {
  for (size_t bytes = std::min<size_t>(3, text.size()); bytes > 0; --bytes) {
    const size_t at = text.size() - bytes;
    const CodePoint last = code_point_at(text, at);
    const bool is_whole = last.value != kInvalid || last.bytes < bytes;
    if (!is_whole && lead_of(static_cast<unsigned char>(text[at])).bytes > bytes) return bytes;
  }
  return 0;
}

}  // namespace fsdp
