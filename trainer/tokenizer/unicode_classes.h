#pragma once

// The classes of code points that the patterns of tokenizers use, in Unicode 16. A value above
// U+10FFFF, such as kInvalid, is in none of them.
namespace fsdp {

bool is_letter(char32_t value);      // in the class \p{L}: letters
bool is_number(char32_t value);      // in the class \p{N}: numbers
bool is_space(char32_t value);       // in the class \s: white space
bool is_in_a_word(char32_t value);   // in the class \w: characters of words
bool is_line_break(char32_t value);  // in the class [\r\n]

}  // namespace fsdp
