#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>
#include <trace/event.h>

#include <optional>
#include <vector>

namespace fsdp {

// How long a step of fsdp takes over a simulated link: medians over all steps but the first. [s]
struct StepTimes {
  double measured;
  double predicted;         // from what each unit computed, if a step waited for the link alone
  double without_prefetch;  // predicted in the same way
};

// Computes these times from the events of one rank. Returns nothing unless config.comm.link is
// given and the mode is fsdp, two steps were recorded, and for each unit a module whose computing
// was recorded (as where every block is a unit).
std::optional<StepTimes> step_times(const TrainConfig& config, const ShardLayout& layout,
                                    const std::vector<Event>& events);

}  // namespace fsdp
