#include <sys/resource.h>
#include <testing/memory_limit.h>

namespace fsdp {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const bool kSanitized = true;
#else
const bool kSanitized = false;
#endif

bool limit_memory(int64_t bytes) {
  const rlimit limit{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  return !kSanitized && setrlimit(RLIMIT_DATA, &limit) == 0;
}

}  // namespace fsdp
