#pragma once

#include <comm/clock.h>

#include <algorithm>

namespace fsdp {

// A clock that stands still until the test says that time has passed, or until something has to be
// waited for: what a step takes is then a sum that can be written down.
class CountedClock final : public Clock {
 public:
  int64_t now() override { return now_; }
  void sleep_until(int64_t time) override { now_ = std::max(now_, time); }
  void pass(int64_t nanoseconds) { now_ += nanoseconds; }

 private:
  int64_t now_{};
};

}  // namespace fsdp
