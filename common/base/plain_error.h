#pragma once

#include <cstddef>
#include <exception>
#include <string>

namespace fsdp {

// The number of bytes after which beginning_of_error() and plain_text() cut the text of an error,
// because plain_text() would need a second to search a giant text for torch's backtrace.
inline constexpr size_t kMostOfError = size_t{1} << 16;
std::string beginning_of_error(const char* text);

// Returns the text of an exception for a person, without what a library adds: the words "filesystem
// error", the number of a JSON exception, torch's backtrace. An error of the file system becomes
// "PATH: REASON". A text longer than kMostOfError is cut.
std::string plain_text(const std::exception& error);

}  // namespace fsdp
