#pragma once

#include <comm/link.h>
#include <prediction/schedule.h>

#include <functional>
#include <vector>

namespace fsdp {

// [ns] that a call takes on the link.
using CallTime = std::function<int64_t(const Schedule::Issue& call)>;
// By the bytes that a rank receives: over `link`.
CallTime over(const Link& link);
CallTime of_units(const CallTime& call_time);  // the loss and a norm take no time

struct StepTime {
  int64_t computing{};  // [ns]
  int64_t waiting{};    // [ns]
  int64_t total() const { return computing + waiting; }
};

// When an action takes place. [ns] since the step began
struct Span {
  int64_t begin{}, end{};
};

// How long a rank's step takes. The link moves one thing at a time, in the order of issue, and the
// rank computes meanwhile.
StepTime predict_step_time(const Schedule& schedule, const CallTime& call_time);
// By action: when the rank computes or waits, and when the link moves what it has issued.
std::vector<Span> predict_spans(const Schedule& schedule, const CallTime& call_time);

// The same of fsdp as `config` says, from the second step on and without the loss, on a model whose
// units, the root's first, compute for `times`, one after another.
StepTime predict_step_time(TrainConfig config, const std::vector<UnitTime>& times,
                           const CallTime& call_time);

}  // namespace fsdp
