#pragma once

#include <launch/rank_context.h>
#include <launch/rank_exit.h>

#include <functional>

namespace fsdp {

// Forks `world_size` ranks, runs `body` in each, and waits for them.
//
// - Threads: torch computes on one thread in a rank unless OMP_NUM_THREADS, or
//   at::set_num_threads() in `body`, says more.
// - Failure: a rank fails if it returns non-zero, throws, dies by a signal, cannot write its
//   output, reads from the terminal, or stays stopped (SIGSTOP) longer than its communicators' time
//   limit. The first failure ends the other ranks at once. If a rank returns 0 while other ranks
//   wait for it, the error of those ranks names it.
// - End: a rank ends with exit(), which destroys the static objects that it has made. Each rank
//   leads a process group, so what it has forked ends with it.
// - Signals to the caller: SIGINT, SIGTERM, SIGHUP and SIGQUIT end every rank; then `on_interrupt`
//   runs; then the signal ends the caller. SIGUSR1, SIGUSR2, and SIGTERM if the caller has a
//   handler for it, go to every rank instead; ranks inherit the caller's handlers. SIGTSTP (Ctrl-Z)
//   and SIGCONT stop and continue the ranks with the caller; time limits do not run meanwhile.
//
// Throws std::logic_error if this process has other threads (torch starts some for its first large
// operator): a child would inherit locks that no thread releases.
LaunchResult launch(int world_size, const std::function<int(const RankContext&)>& body,
                    const std::function<void()>& on_interrupt = nullptr);

}  // namespace fsdp
