#pragma once

#include <sys/types.h>

#include <string>

namespace fsdp {

// Throws std::logic_error, whose text begins with `who` and names the threads, if this process has
// threads besides the calling one. A fork copies only the calling thread, so locks that other
// threads hold stay locked in the child for ever. Torch starts threads for its first large
// operator.
void require_one_thread(const std::string& who);

// Call it in a process that `parent` has just forked. From then on, the system kills this process
// when the thread that forked it ends. If the parent has ended already, calls _exit(1) at once.
void end_with(pid_t parent);

// Returns whether the process exists and has not ended. It need not be a child of this process.
bool process_runs(pid_t process);

}  // namespace fsdp
