#pragma once

#include <sys/wait.h>
#include <unistd.h>

// Waits for `process`, a child, and returns its status as waitpid() reports it.
namespace fsdp {

inline int status_of(pid_t process) {
  int status = 0;
  waitpid(process, &status, 0);
  return status;
}

}  // namespace fsdp
