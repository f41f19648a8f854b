#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>
#include <trace/event.h>

#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// The time for which one call of a module computed: the duration of the call, without the waits and
// the calls of other modules inside it. For the root, this is the time outside all modules below
// it.
struct ComputeTime {
  EventKind kind;    // EventKind::forward or EventKind::backward
  std::string unit;  // name of the module that was called
  double seconds;
};

// Returns the compute times of every call of a module's forward or backward within `step`, in the
// order in which the calls began. `events`: all events of one rank. `step`: the event of a step,
// one of `events`.
std::vector<ComputeTime> compute_times(const std::vector<Event>& events, const Event& step);

// The measured and the predicted duration [s] of a step of --mode fsdp over a simulated link. Each
// is the median over all steps but the first.
struct StepTimes {
  double measured;
  // The duration of a step in which each unit computes for its measured time, and the rank waits
  // only for the link.
  double predicted;
  double without_prefetch;  // the predicted duration of a step without prefetch
};

// Computes the durations of a step, measured and predicted, from `events`, those of one rank.
// Returns nothing unless
// - config.ranks.comm.link is set and the mode is fsdp;
// - a step after the first was recorded;
// - for each unit, the computing of a module with the unit's name was recorded, as it is if every
//   block is a unit.
std::optional<StepTimes> step_times(const TrainConfig& config, const ShardLayout& layout,
                                    const std::vector<Event>& events);

}  // namespace fsdp
