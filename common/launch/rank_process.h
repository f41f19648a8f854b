#pragma once

#include <launch/rank_context.h>
#include <sys/types.h>

#include <functional>

namespace fsdp {

// What the process of one rank does, from the fork to its exit.

// In a process that `parent` has just forked: runs `body` and ends the process. Its exit status is
// that of `body`, or 1 if `body` throws or what it has printed can't be written; the reason is then
// in SharedRegion::message(). The process ends when `parent` does. It destroys the static objects
// that the rank has made, and none that it has inherited.
[[noreturn]] void run_rank(const RankContext& context, pid_t parent,
                           const std::function<int(const RankContext&)>& body);

// If FSDP_REPLAY names a rank of this run (recording.h): runs that rank in the calling process, in
// place of all ranks that the caller would fork, and ends the process. Else does nothing.
void replay_rank(int world_size, const std::function<int(const RankContext&)>& body);

}  // namespace fsdp
