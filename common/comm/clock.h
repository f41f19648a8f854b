#pragma once

#include <cstdint>
#include <memory>

namespace fsdp {

// Time, in nanoseconds, as all ranks of one machine read it.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now() = 0;
  virtual void sleep_until(int64_t time) = 0;  // gives the core to others meanwhile
};

// CLOCK_MONOTONIC.
std::shared_ptr<Clock> monotonic_clock();

}  // namespace fsdp
