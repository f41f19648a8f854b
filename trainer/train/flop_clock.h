#pragma once

#include <comm/clock.h>
#include <planning/flop_counter.h>

namespace fsdp {

// A clock that counts work instead of measuring time. When this process computes, the clock
// advances by the number of floating-point operations (flop_counter.h) divided by a fixed rate.
// When the process sleeps, it advances by the time slept. So its times depend neither on the
// machine nor on other programs on it. Each rank has its own clock, which starts at 0. Over a
// simulated link (CommunicatorOptions::link), a rank sleeps until a collective ends, at a time that
// depends on the clocks of all ranks.
class FlopClock final : public Clock {
 public:
  explicit FlopClock(double flops_per_second) : flops_per_second_(flops_per_second) {}

  int64_t now() override { return computing() + slept_; }
  void sleep_until(int64_t time) override;
  int64_t computing();  // [ns] that this process has computed so far

 private:
  double flops_per_second_;
  FlopCounter counter_;
  int64_t flops_{};
  int64_t slept_{};  // [ns] that this process has slept so far
};

}  // namespace fsdp
