#pragma once

#include <comm/clock.h>

#include <algorithm>

namespace fsdp {

// A clock that advances only in pass() and sleep_until(). So a test can compute by hand how long a
// step takes.
class CountedClock final : public Clock {
 public:
  int64_t now() override { return now_; }
  void sleep_until(int64_t time) override { now_ = std::max(now_, time); }
  void pass(int64_t nanoseconds) { now_ += nanoseconds; }

 private:
  int64_t now_{};
};

}  // namespace fsdp
