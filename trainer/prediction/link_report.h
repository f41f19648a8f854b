#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>
#include <trace/event.h>

#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// How long one call of a module computed: its span without the waits and the spans of other modules
// inside it. The root's is the time that no module under it accounts for.
struct ComputeTime {
  EventKind kind;    // forward or backward
  std::string unit;  // the module's name
  double seconds;
};

// The compute times of every forward and backward of one rank that ended in `step`, one of its
// events, in the order in which they began.
std::vector<ComputeTime> compute_times(const std::vector<Event>& events, const Event& step);

// How long a step of fsdp takes over a simulated link: medians over all steps but the first. [s]
struct StepTimes {
  double measured;
  double predicted;         // from what each unit computed, if a step waited for the link alone
  double without_prefetch;  // predicted in the same way
};

// Computes these times from the events of one rank. Returns nothing unless config.ranks.comm.link
// is given and the mode is fsdp, two steps were recorded, and for each unit a module whose
// computing was recorded (as where every block is a unit).
std::optional<StepTimes> step_times(const TrainConfig& config, const ShardLayout& layout,
                                    const std::vector<Event>& events);

}  // namespace fsdp
