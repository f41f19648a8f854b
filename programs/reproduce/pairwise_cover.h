#pragma once

#include <cstddef>
#include <vector>

namespace fsdp {

// Returns rows with one value for each factor; factor i has the values 0 to counts[i] - 1. Any two
// values of two different factors are together in at least one row. The rows are the same on every
// machine. They are few, but not always the fewest possible.
std::vector<std::vector<size_t>> pairwise_cover(const std::vector<size_t>& counts);

}  // namespace fsdp
