#pragma once

#include <launch/rank_context.h>
#include <launch/rank_exit.h>

#include <functional>

namespace fsdp {

// Forks `world_size` ranks, runs `body` in each and waits for them.
//
// - Each rank leads a process group: what it forks ends with it. Torch computes on one thread in a
//   rank unless OMP_NUM_THREADS, or `body` by at::set_num_threads(), says more.
// - A rank fails if it returns non-zero, throws, dies by a signal, can't write what it prints,
// reads
//   from the terminal, or stays stopped (SIGSTOP) for longer than its communicators' time limit.
//   The first failure ends the other ranks at once. If a rank returns 0 while others wait for it,
//   their error names it.
// - A rank leaves by exit(), which destroys the static objects that it has made.
// - A signal that interrupts or kills the caller (SIGINT, SIGTERM, SIGHUP, SIGQUIT) ends every
// rank.
//   `on_interrupt` runs after the ranks have ended and before the signal ends the caller.
// - SIGUSR1 and SIGUSR2, and SIGTERM if the caller has a handler for it, go to every rank instead.
//   The ranks inherit the caller's handlers.
// - SIGTSTP (Ctrl-Z) and SIGCONT stop and continue the ranks with the caller; the time limits stand
//   still meanwhile.
//
// Throws std::logic_error if this process has other threads, as torch starts them for the first
// large operator: a child would inherit locks that nobody holds any more.
LaunchResult launch(int world_size, const std::function<int(const RankContext&)>& body,
                    const std::function<void()>& on_interrupt = nullptr);

}  // namespace fsdp
