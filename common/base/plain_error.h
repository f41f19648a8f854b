#pragma once

#include <exception>
#include <string>

namespace fsdp {

// Returns the text of an exception for people. What a library puts around it is left out: the words
// "filesystem error", the number of a JSON exception, the backtrace of torch's. An error of the
// file system becomes "PATH: REASON".
std::string plain_text(const std::exception& error);

}  // namespace fsdp
