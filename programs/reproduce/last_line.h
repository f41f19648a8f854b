#pragma once

#include <string>

namespace fsdp {

// Returns the last line of `text` that is not empty; "" if there is none.
std::string last_line(const std::string& text);

}  // namespace fsdp
