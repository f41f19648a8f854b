#pragma once

#include <string>
#include <string_view>

namespace fsdp {

// Returns the text in Unicode's normalization form C, in which "e" and a combining acute accent are
// one code point. Keeps bytes that are not valid UTF-8.
std::string nfc(std::string_view text);

}  // namespace fsdp
