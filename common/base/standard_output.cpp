#include <base/standard_output.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace fsdp {
namespace {

// The errno of the first flush_output() that failed. stdout itself keeps only a flag (ferror()).
int first_error = 0;

}  // namespace

void flush_output() {
  if (std::fflush(stdout) != 0 && first_error == 0) first_error = errno;
  if (first_error == EPIPE) {
    std::signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
  }
  std::cout.flush();
}

std::string lost_output() {
  flush_output();
  if (std::ferror(stdout) == 0 || fcntl(STDOUT_FILENO, F_GETFD) < 0) return "";
  const std::string reason = first_error != 0 ? std::strerror(first_error) : "a write has failed";
  return "standard output: " + reason;
}

}  // namespace fsdp
