#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace fsdp {

// A condition variable in shared memory: processes sleep on it until another process rings. Zeroed
// memory is a valid bell.
// - A waiting process calls listen(), then repeats: read count(), check its condition,
//   sleep(count). At the end it calls leave().
// - Then no ring is lost: ring() either sees the listener and wakes it, or has raised the count
//   before the listener reads it.
class SharedCondition {
 public:
  // Wakes all sleeping processes. Must be called after the condition has changed.
  void notify_all();

  void enter() { waiters_.fetch_add(1); }
  void exit() { waiters_.fetch_sub(1); }
  uint32_t count() const { return rings_.load(); }

  // Sleeps until a process rings after `count` was read, for at most `timeout`. May return early.
  void sleep(uint32_t count, std::chrono::nanoseconds timeout);

 private:
  std::atomic<uint32_t> rings_;
  std::atomic<uint32_t> waiters_;
};

}  // namespace fsdp
