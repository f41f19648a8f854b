#include <comm/shared_condition.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace fsdp {
namespace {

// Calls futex() without FUTEX_PRIVATE_FLAG, because with this flag it would wake no other process.
void futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* timeout) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void SharedCondition::notify_all() {
  notifications_.fetch_add(1);
  if (waiters_.load() > 0) futex(&notifications_, FUTEX_WAKE, INT_MAX, nullptr);
}

void SharedCondition::sleep(uint32_t count, std::chrono::nanoseconds timeout) {
  auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec relative{seconds.count(), (timeout - seconds).count()};
  futex(&notifications_, FUTEX_WAIT, count, &relative);
}

}  // namespace fsdp
