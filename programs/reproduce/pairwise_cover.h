#pragma once

#include <cstddef>
#include <vector>

namespace fsdp {

// Rows of values, one per factor (factor i takes 0 .. counts[i] - 1), such that every two values of
// every two factors meet in some row. The same rows on every machine; not the fewest possible.
std::vector<std::vector<size_t>> pairwise_cover(const std::vector<size_t>& counts);

}  // namespace fsdp
