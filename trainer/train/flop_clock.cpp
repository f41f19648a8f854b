#include <train/flop_clock.h>

#include <algorithm>

namespace fsdp {

int64_t FlopClock::computing() {
  flops_ += counter_.take();
  return static_cast<int64_t>(static_cast<double>(flops_) / flops_per_second_ * 1e9);
}

void FlopClock::sleep_until(int64_t time) {
  slept_ += std::max<int64_t>(time - now(), 0);
}

}  // namespace fsdp
