#pragma once

#include <config/train_config.h>
#include <launch/rank_context.h>

namespace fsdp {

// For ranks that a launcher has started one by one, each with a command line and files of its own:
// throws std::runtime_error if their settings, their text or the steps behind them differ, or if
// one does not see the --checkpoint-dir of rank 0. The text names a rank and its host, the option
// that differs, and the two values. All ranks call it together; between forked ranks it does
// nothing.
void require_one_run(const TrainConfig& config, const RankContext& context, Communicator& comm);

}  // namespace fsdp
