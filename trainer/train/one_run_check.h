#pragma once

#include <config/train_config.h>
#include <launch/rank_context.h>

namespace fsdp {

// Collective. Checks ranks that a launcher has started one by one, each with a command line and
// files of its own; for forked ranks it does nothing.
// Throws std::runtime_error if the ranks' settings, text or number of finished steps differ, or if
// a rank does not see the --checkpoint-dir of rank 0. The text names a rank and its host, the
// option that differs, and the two values.
void require_one_run(const TrainConfig& config, const RankContext& context, Communicator& comm);

}  // namespace fsdp
