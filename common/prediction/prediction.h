#pragma once

#include <config/train_config.h>
#include <layout/shard_layout.h>
#include <memory/live_bytes.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace fsdp {

// What a step should cost, computed from the sizes of the units alone. To be compared with what was
// measured, to the byte.

// The largest number of bytes of each class alive in each phase on `rank`: a replay of the step's
// allocations. `backend` is "shm" or "gloo", never "auto". `first`: in a run of one step, which has
// no forward order to prefetch by and no optimizer state before its last phase; else in any later
// step. No value where none is predicted: the phase init, phases that a run of no steps does not
// enter, the class rest, and the gathered parameters and gradients of fsdp with units inside units
// other than the root. The loss is reduced in the phase backward, the norm in the phase optimizer.
using PredictedBytes = std::array<std::array<std::optional<int64_t>, kMemoryClasses>, kPhases>;
PredictedBytes predict_live_bytes(const TrainConfig& config, const ShardLayout& layout, int rank,
                                  const std::string& backend, bool first);

// Bytes a rank receives in one step (in the evaluation, if there are no steps), by operation
// ("all_gather", "reduce_scatter", "all_reduce") and by label of what serves no unit ("norm",
// "metrics"); no key for what is not called. By the textbook count of communicator.h.
std::map<std::string, int64_t> predict_comm_bytes(const TrainConfig& config,
                                                  const ShardLayout& layout);

}  // namespace fsdp
