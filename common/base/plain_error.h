#pragma once

#include <cstddef>
#include <exception>
#include <string>

namespace fsdp {

// Returns the text of an exception for people. What a library puts around it is left out: the words
// "filesystem error", the number of a JSON exception, the backtrace of torch's. An error of the
// file system becomes "PATH: REASON". Of a text of more than kMostOfError bytes it is the
// beginning: to search a giant one for a backtrace takes a second.
inline constexpr size_t kMostOfError = size_t{1} << 16;
std::string plain_text(const std::exception& error);

}  // namespace fsdp
