#pragma once

#include <optional>
#include <string>
#include <string_view>

// In the tokenizer.json of a byte-level tokenizer, each byte is written as a visible letter. A byte
// that is a visible character of Latin-1 is written as this character. The other bytes are written
// as the letters from U+0100 on; for example, the space is written as U+0120.
namespace fsdp {

char32_t letter_of_byte(unsigned char byte);

// Returns the bytes that are written as `letters`, or nothing if a character of `letters` stands
// for no byte.
std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace fsdp
