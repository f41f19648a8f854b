#pragma once

#include <comm/default_timeout.h>
#include <launch/rank_context.h>

#include <chrono>
#include <functional>
#include <string>

namespace fsdp {

// Runs a program's ranks as launch() does. If a launcher has started this process as one of at
// least `world_size` ranks, joins the other ranks instead, and runs only this rank. Waits for the
// other ranks for at most `timeout`. A rank that the run does not use, because its number is
// `world_size` or higher, waits until the run has ended.
// - Returns the exit status for main(): 0; 1 if a rank failed (one process prints why; the line
//   begins with `program`, by default the name by which the program was called); 2 if the
//   environment is invalid.
// - `at_end(failure)` runs when all ranks of this process have ended, even if a signal is about to
//   end the process; `failure` is empty on success. If it returns false, the exit status is not 0.
// - If `after_loss` is given and a host is lost, the surviving ranks continue. after_loss(number of
//   surviving ranks) returns how many ranks the new world has. The process of each of these ranks
//   forks a new rank, which finds in RankContext::handover the state that the former rank saved
//   when it failed because another rank was lost. One process prints which host was lost. The run
//   ends if the host of rank 0 or of the store is lost.
using AtEnd = std::function<bool(const std::string& failure)>;
int start(int world_size, const std::function<int(const RankContext&)>& body,
          const std::string& program = "", const AtEnd& at_end = nullptr,
          std::chrono::milliseconds timeout = kDefaultTimeout,
          const std::function<int(int ranks)>& after_loss = nullptr);

}  // namespace fsdp
