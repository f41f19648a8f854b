#include <tokenizer/byte_letters.h>
#include <tokenizer/utf8.h>

#include <array>
#include <map>

namespace fsdp {
namespace {

std::array<char32_t, 256> letters() {
  std::array<char32_t, 256> all{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool visible = (byte > ' ' && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    all[byte] = visible ? byte : next++;
  }
  return all;
}

std::map<char32_t, char> bytes() {
  std::map<char32_t, char> all;
  for (int byte = 0; byte < 256; ++byte)
    all[letter_of_byte(static_cast<unsigned char>(byte))] = static_cast<char>(byte);
  return all;
}

}  // namespace

char32_t letter_of_byte(unsigned char byte) {
  static const std::array<char32_t, 256> kLetters = letters();
  return kLetters[byte];
}

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  static const std::map<char32_t, char> kBytes = bytes();
  std::string result;
  for (size_t at = 0; at < letters.size();) {
    const CodePoint letter = code_point_at(letters, at);
    const auto byte = kBytes.find(letter.value);
    if (byte == kBytes.end()) return std::nullopt;
    result += byte->second;
    at += letter.bytes;
  }
  return result;
}

}  // namespace fsdp
