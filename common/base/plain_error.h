#pragma once

#include <cstddef>
#include <exception>
#include <string>

namespace fsdp {

// The most bytes of an error's text that are kept. A longer text is cut, because a search for
// torch's backtrace in a giant text takes a second.
inline constexpr size_t kMostOfError = size_t{1} << 16;
std::string beginning_of_error(const char* text);

// Returns the text of an exception for a person, without what a library adds: the words "filesystem
// error", the number of a JSON exception, torch's backtrace. An error of the file system becomes
// "PATH: REASON". A text longer than kMostOfError is cut.
std::string plain_text(const std::exception& error);

}  // namespace fsdp
