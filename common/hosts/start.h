#pragma once

#include <comm/default_timeout.h>
#include <launch/rank_context.h>

#include <chrono>
#include <functional>
#include <string>

namespace fsdp {

// Runs a program's ranks as launch() does. If torchrun has started this process as one of
// `world_size` ranks, joins the others instead, for which it waits at most `timeout`, and runs this
// rank alone. Returns the exit status for main(): 0; 1 if a rank failed (one process prints why,
// after `program`, by default the name it was called by); 2 if the environment makes no sense.
// `at_end(failure)` runs once all ranks of this process have ended, even if a signal is about to
// end the process; `failure` is empty on success. If it returns false, the exit status is not 0.
//
// If `after_loss` is given and a host is lost, the others go on: the process of each rank forks
// another one in its place, in a world of as many of them as after_loss(their number) says. It has
// what the former one has left in Handover::current when it failed because it had lost a rank. The
// lost host is named once. The host of rank 0 and of the store can't be lost.
using AtEnd = std::function<bool(const std::string& failure)>;
int start(int world_size, const std::function<int(const RankContext&)>& body,
          const std::string& program = "", const AtEnd& at_end = nullptr,
          std::chrono::milliseconds timeout = kDefaultTimeout,
          const std::function<int(int ranks)>& after_loss = nullptr);

}  // namespace fsdp
