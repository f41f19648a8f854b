#pragma once

#include <comm/clock.h>
#include <testing/test_rank.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace fsdp {

// A clock whose time advances only in pass() and sleep_until(). So a test can compute by hand how
// long a step takes.
class CountedClock final : public Clock {
 public:
  int64_t now() override { return now_; }
  void sleep_until(int64_t time) override { now_ = std::max(now_, time); }
  void pass(int64_t nanoseconds) { now_ += nanoseconds; }

 private:
  int64_t now_{};
};

// Returns options for run_ranks(): the ranks read the time from `clock`, and communicate over a
// simulated link on which each hop to the next rank takes `hop` and the transfer of bytes no time.
inline RunOptions over_counted_link(std::shared_ptr<CountedClock> clock,
                                    std::chrono::nanoseconds hop) {
  RunOptions options;
  options.link = Link{hop, 1e18};
  options.clock = std::move(clock);
  return options;
}

}  // namespace fsdp
