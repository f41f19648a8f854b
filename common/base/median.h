#pragma once

#include <algorithm>
#include <vector>

namespace fsdp {

// Returns the middle value, or the upper one of the two middle values if their number is even.
// Requires at least one value.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace fsdp
