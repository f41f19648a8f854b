#pragma once

#include <string>

namespace fsdp {

// For a message, what somebody else has written: without control characters, and at most 500
// characters of it.
std::string one_line(const std::string& text);

}  // namespace fsdp
