#pragma once

#include <cstdint>
#include <memory>

namespace fsdp {

// The time in nanoseconds. All ranks of one machine read the same clock.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now() = 0;
  virtual void sleep_until(int64_t time) = 0;  // leaves the core to other threads
};

// Returns the clock CLOCK_MONOTONIC.
std::shared_ptr<Clock> monotonic_clock();

}  // namespace fsdp
