#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace fsdp {

// What one unit costs in one forward and backward. [ns]
struct UnitTime {
  int64_t forward{};         // that it computes, waits not counted
  int64_t backward{};        // the same in backward
  int64_t all_gather{};      // on the link
  int64_t reduce_scatter{};  // on the link; 0 for a unit with nothing to train
};

// How long forward and backward of fsdp take together, from the second step on. [ns] The link moves
// one thing at a time, in the order of issue, and the rank computes meanwhile. `units`: the root
// first, then the others in the order of their forward, none inside another. In forward the root
// computes after the others, in backward before them. `limit`: units gathered at a time; 1 is
// without prefetch. `turns`: how many forwards and backwards there are. `backward_limit`: the limit
// of backward, if it is another.
int64_t predict_step_time(const std::vector<UnitTime>& units, int limit, bool reshard_after_forward,
                          int turns = 1, std::optional<int> backward_limit = {});

}  // namespace fsdp
