#include <sys/resource.h>
#include <testing/memory_limit.h>

namespace fsdp {

bool limit_memory(int64_t bytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static_cast<void>(bytes);
  return false;
#else
  const rlimit limit{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  return setrlimit(RLIMIT_DATA, &limit) == 0;
#endif
}

}  // namespace fsdp
