#pragma once

#include <config/train_config.h>
#include <launch/rank_context.h>

namespace fsdp {

// Collective. Checks ranks that a launcher such as torchrun has started separately, each with its
// own command line and files. Does nothing if the ranks were forked by one process. Throws
// std::runtime_error
// - if the ranks' settings, text or number of finished steps differ. The message names a rank and
//   its host, what differs, and the two values;
// - if a rank does not see the --checkpoint-dir of rank 0;
// - if --on-lost-host is continue and a replica is on several hosts.
void require_one_run(const TrainConfig& config, const RankContext& context, Communicator& comm);

}  // namespace fsdp
