#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace fsdp {

// A condition variable in shared memory, on which processes sleep until another process calls
// notify_all(). Zeroed memory is a valid SharedCondition.
// - A waiting process calls enter(), then repeats: read count(), check what it waits for,
//   sleep(count). At the end it calls exit().
// - So no notification is lost: notify_all() either sees the waiting process and wakes it, or has
//   raised the count before that process reads it.
class SharedCondition {
 public:
  // Wakes all sleeping processes. Must be called after the condition has changed.
  void notify_all();

  void enter() { waiters_.fetch_add(1); }
  void exit() { waiters_.fetch_sub(1); }
  uint32_t count() const { return notifications_.load(); }

  // Sleeps until a process calls notify_all() after `count` was read, for at most `timeout`. May
  // return early.
  void sleep(uint32_t count, std::chrono::nanoseconds timeout);

 private:
  std::atomic<uint32_t> notifications_;
  std::atomic<uint32_t> waiters_;
};

}  // namespace fsdp
