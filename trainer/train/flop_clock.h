#pragma once

#include <comm/clock.h>
#include <planning/flop_counter.h>

namespace fsdp {

// A clock that counts instead of measuring: it advances when this process computes, by the
// floating-point operations (flop_counter.h) at a fixed rate, and when the process sleeps. So times
// depend neither on the machine nor on what else it runs. Each rank has its own clock, which counts
// from 0. Over a simulated link (CommunicatorOptions::link) a rank sleeps until a call ends, at a
// time that depends on the clocks of all ranks.
class FlopClock final : public Clock {
 public:
  explicit FlopClock(double flops_per_second) : flops_per_second_(flops_per_second) {}

  int64_t now() override { return computing() + slept_; }
  void sleep_until(int64_t time) override;
  int64_t computing();  // [ns] of computing until now

 private:
  double flops_per_second_;
  FlopCounter counter_;
  int64_t flops_{};
  int64_t slept_{};  // [ns]
};

}  // namespace fsdp
