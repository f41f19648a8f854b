#pragma once

#include <string>
#include <vector>

namespace fsdp {

// How many times the expected values the actual ones are, in words, if all have the same factor:
// "every element is exactly 3/2 times the expected one". Empty if they have none. Both have the
// same length.
std::string ratio_in_words(const std::vector<double>& actual, const std::vector<double>& expected);

}  // namespace fsdp
