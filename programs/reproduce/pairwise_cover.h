#pragma once

#include <cstddef>
#include <vector>

namespace fsdp {

// Returns rows with one value for each factor (factor i has the values 0 .. counts[i] - 1), such
// that every two values of every two factors are together in some row. The rows are the same on
// every machine. They are few, but not always the fewest possible.
std::vector<std::vector<size_t>> pairwise_cover(const std::vector<size_t>& counts);

}  // namespace fsdp
