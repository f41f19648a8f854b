#pragma once

#include <launch/rank_context.h>
#include <sys/types.h>

#include <functional>

namespace fsdp {

// The process of one rank, from the fork to its exit.

// Runs `body` in a process that `parent` has just forked, and ends the process.
// - The exit status is that of `body` (from 1 to 255 if it is not 0), or 1 if `body` throws or the
//   output of the process can't be written; the reason is then in SharedRegion::message().
// - The process ends when `parent` does.
// - The process destroys the static objects that the rank has made, and none that it has inherited.
[[noreturn]] void run_rank(const RankContext& context, pid_t parent,
                           const std::function<int(const RankContext&)>& body);

// If FSDP_REPLAY names a rank of this run (recording.h), runs that rank in the calling process, in
// place of all ranks that the caller would fork, and ends the process. Otherwise does nothing.
void replay_rank(int world_size, const std::function<int(const RankContext&)>& body);

}  // namespace fsdp
