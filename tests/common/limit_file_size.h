#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

namespace fsdp {

// From now on this process can make no file larger than that, as on a disk that is full. To be
// called in a process of its own.
inline void limit_file_size(rlim_t bytes) {
  std::signal(SIGXFSZ, SIG_IGN);  // so that the write fails
  const rlimit limit{bytes, bytes};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

}  // namespace fsdp
