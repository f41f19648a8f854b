#pragma once

#include <string>
#include <vector>

namespace fsdp {

// Describes the ratio of actual to expected values if it is the same for all elements: "every
// element is exactly 3/2 times the expected one". Returns "" if the ratios differ. Both lists must
// have the same length.
std::string ratio_in_words(const std::vector<double>& actual, const std::vector<double>& expected);

}  // namespace fsdp
