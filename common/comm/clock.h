#pragma once

#include <cstdint>
#include <memory>

namespace fsdp {

// A source of time in nanoseconds. monotonic_clock() gives all ranks of one machine the same time.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now() = 0;
  // Sleeps until now() is at least `time`, so that other threads can use the core.
  virtual void sleep_until(int64_t time) = 0;
};

// Returns a Clock that reads the system's CLOCK_MONOTONIC.
std::shared_ptr<Clock> monotonic_clock();

}  // namespace fsdp
