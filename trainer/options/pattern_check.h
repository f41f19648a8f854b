#pragma once

#include <string>

namespace fsdp {

// Throws UsageError unless `pattern`, the value of `option`, is a regular expression of at most 500
// characters.
void check_pattern(const std::string& option, const std::string& pattern);

}  // namespace fsdp
