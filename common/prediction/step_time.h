#pragma once

#include <cstdint>
#include <vector>

namespace fsdp {

// What one unit costs in a step. [ns]
struct UnitTime {
  int64_t forward{};         // computing, without waiting
  int64_t backward{};        // likewise
  int64_t all_gather{};      // on the link
  int64_t reduce_scatter{};  // likewise; 0 for a unit with nothing to train
};

// How long forward and backward of fsdp take from the second step on: a replay of what is issued,
// waited for and computed in which order, where the link moves one thing at a time and the rank
// computes meanwhile. The root comes first, then the units in the order of forward, none inside
// another. The root computes after the others in forward and before them in backward. `limit`:
// units gathered at a time, 1 without prefetch. [ns]
int64_t predict_step_time(const std::vector<UnitTime>& units, int limit,
                          bool reshard_after_forward);

}  // namespace fsdp
