#pragma once

#include <algorithm>
#include <vector>

namespace fsdp {

// The middle one of the values, of which there is at least one; of an even number, the upper
// middle.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace fsdp
