#include <comm/clock.h>
#include <time.h>

#include <cerrno>

namespace fsdp {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class MonotonicClock final : public Clock {
 public:
  int64_t now() override {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * kSecond + time.tv_nsec;
  }

  void sleep_until(int64_t time) override {
    const timespec until{time / kSecond, time % kSecond};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }
};

}  // namespace

std::shared_ptr<Clock> monotonic_clock() {
  static const auto clock = std::make_shared<MonotonicClock>();
  return clock;
}

}  // namespace fsdp
