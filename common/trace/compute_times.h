#pragma once

#include <trace/event.h>

#include <vector>

namespace fsdp {

// How long one call of a module computed: its span without the waits and the other modules' spans
// within it. The root's is what no module under it accounts for.
struct ComputeTime {
  EventKind kind;    // forward or backward
  std::string unit;  // the module's name
  double seconds;
};

// Of every forward and backward that ended in step `step` of one rank, in the order in which they
// began. Empty if the step is not among the events, or did not end.
std::vector<ComputeTime> compute_times(const std::vector<Event>& events, uint64_t step);

}  // namespace fsdp
