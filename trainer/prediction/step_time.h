#pragma once

#include <comm/link.h>
#include <prediction/schedule.h>

#include <functional>
#include <vector>

namespace fsdp {

// Returns how long [ns] a call takes on the link.
using CallTime = std::function<int64_t(const Schedule::Issue& call)>;
// Returns the function that computes how long a call takes over `link`. The time depends on the
// operation, the bytes that a rank receives, and the number of ranks.
CallTime over(const Link& link);
// Returns a function that equals `call_time` for calls that serve a unit, and returns 0 for the
// calls for the loss and a norm.
CallTime of_units(const CallTime& call_time);

struct StepTime {
  int64_t computing{};  // [ns]
  int64_t waiting{};    // [ns]
  int64_t total() const { return computing + waiting; }
};

// The time of an action. [ns] since the step began
struct Span {
  int64_t begin{}, end{};
};

// Returns how long a rank's step takes. The link handles one call at a time, in the order of issue,
// and the rank computes meanwhile.
StepTime predict_step_time(const Schedule& schedule, const CallTime& call_time);
// Returns, for each action, when the rank computes or waits, or when the link moves the bytes of
// the call that was issued.
std::vector<Span> predict_spans(const Schedule& schedule, const CallTime& call_time);

// Returns how long a step of fsdp with `config` takes, from the second step on and without the
// loss, on a model whose units compute one after another for `times`; the root is the first of
// them.
StepTime predict_step_time(TrainConfig config, const std::vector<UnitTime>& times,
                           const CallTime& call_time);

}  // namespace fsdp
