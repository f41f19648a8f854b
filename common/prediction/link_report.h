#pragma once

#include <config/train_config.h>
#include <layout/shard_layout.h>
#include <trace/event.h>

#include <optional>
#include <vector>

namespace fsdp {

// How long a step of fsdp takes over a simulated link. [s] Medians over the steps after the first.
struct StepTimes {
  double measured;
  double predicted;  // from what each unit computed, as if the link were all that is waited for
  double without_prefetch;  // predicted likewise
};

// From the events of one rank. Nothing unless config.comm.link is given, two steps were recorded
// and each unit is a module whose computing was recorded (as with --wrap block).
std::optional<StepTimes> step_times(const TrainConfig& config, const ShardLayout& layout,
                                    const std::vector<Event>& events);

}  // namespace fsdp
