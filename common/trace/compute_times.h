#pragma once

#include <trace/event.h>

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

// The compute times of every forward and backward that ended in step `step` of one rank, in the
// order in which they began. Empty if the step is not among the events, or did not end.
std::vector<ComputeTime> compute_times(const std::vector<Event>& events, uint64_t step);

}  // namespace fsdp
