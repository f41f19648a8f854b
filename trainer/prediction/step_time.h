#pragma once

#include <comm/link.h>
#include <prediction/schedule.h>

#include <functional>
#include <vector>

namespace fsdp {

// A function that returns how long [ns] a call takes on a link.
using CallTime = std::function<int64_t(const Schedule::Issue& call)>;
// Returns the function that computes how long a call takes over `link`. The time depends on the
// operation, the bytes that a rank receives, and the number of ranks.
CallTime over(const Link& link);
// Returns a function that equals `call_time` for calls that serve a unit, and returns 0 for the
// calls for the loss and a norm.
CallTime of_units(const CallTime& call_time);

struct StepTime {
  int64_t computing{};  // [ns] for which the rank computes
  int64_t waiting{};    // [ns] for which the rank waits for the link
  int64_t total() const { return computing + waiting; }
};

// When an action begins and ends: [ns] since the step began.
struct Span {
  int64_t begin{}, end{};
};

// Returns how long a rank's step takes. The link moves the bytes of one call at a time, in the
// order of issue, and the rank computes meanwhile.
StepTime predict_step_time(const Schedule& schedule, const CallTime& call_time);
// Returns the span of each action: for Compute and Wait, when the rank computes or waits; for
// Issue, when the link moves the bytes of the call.
std::vector<Span> predict_spans(const Schedule& schedule, const CallTime& call_time);

// Returns how long a step of --mode fsdp with `config` takes on a model whose units compute one
// after another, each for its time in `times`; the first unit is the root. The step is not the
// first of the run, and its time does not include the collectives of the loss.
StepTime predict_step_time(TrainConfig config, const std::vector<UnitTime>& times,
                           const CallTime& call_time);

}  // namespace fsdp
