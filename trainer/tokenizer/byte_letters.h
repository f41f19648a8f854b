#pragma once

#include <optional>
#include <string>
#include <string_view>

// In a tokenizer.json of bytes, a visible letter stands for each byte: the letter of the same
// number for the visible characters of Latin-1, and the letters from U+0100 on for the other bytes,
// such as U+0120 for the space.
namespace fsdp {

char32_t letter_of_byte(unsigned char byte);

// Returns the bytes for which the letters stand, or nothing if a character stands for no byte.
std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace fsdp
