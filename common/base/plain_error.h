#pragma once

#include <cstddef>
#include <exception>
#include <string>

namespace fsdp {

// [bytes] An error's text is cut after so many: to search a giant one for a backtrace takes a
// second.
inline constexpr size_t kMostOfError = size_t{1} << 16;
std::string beginning_of_error(const char* text);

// Returns the text of an exception for people, from its beginning. What a library puts around it is
// left out: the words "filesystem error", the number of a JSON exception, the backtrace of torch's.
// An error of the file system becomes "PATH: REASON".
std::string plain_text(const std::exception& error);

}  // namespace fsdp
