#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

namespace fsdp {

// From now on, a write of this process that would make a file larger than `bytes` fails, as on a
// full disk. The limit stays, so call it in a process of its own.
inline void limit_file_size(rlim_t bytes) {
  std::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond the limit fails with EFBIG
  const rlimit limit{bytes, bytes};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

}  // namespace fsdp
