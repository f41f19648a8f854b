#pragma once

#include <sys/types.h>

#include <string>

namespace fsdp {

// Throws std::logic_error, which begins with `who` and names the threads, if this process has other
// threads than the calling one. A fork copies the calling thread alone: locks that others hold stay
// locked in the child for ever. Torch starts threads for the first large operator.
void require_one_thread(const std::string& who);

// For a process that `parent` has just forked: it is killed when the thread that forked it ends,
// and leaves at once by _exit(1) if that has ended already.
void end_with(pid_t parent);

// Whether a process is there and has not ended, whoever is to wait for it.
bool process_runs(pid_t process);

}  // namespace fsdp
