#pragma once

#include <sys/types.h>

#include <string>

namespace fsdp {

// Throws std::logic_error, which begins with `who`, if this process has other threads than the
// calling one. A fork copies the calling thread alone: locks that others hold stay locked in the
// child for ever. Torch starts threads for the first large operator.
void require_one_thread(const std::string& who);

// Whether a process is there and has not ended, whoever is to wait for it.
bool process_runs(pid_t process);

}  // namespace fsdp
