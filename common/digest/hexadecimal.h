#pragma once

#include <string>
#include <string_view>

namespace fsdp {

// Returns the bytes as text, with two lower-case hexadecimal digits for each byte.
std::string hexadecimal(std::string_view bytes);

}  // namespace fsdp
