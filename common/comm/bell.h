#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace fsdp {

// A word in shared memory on which processes sleep until another one rings. Zeroed memory is a
// valid bell. Whoever waits looks at its condition between listen() and sleep(), so no ring is
// lost: ring() either sees the listener or has raised the count before the listener reads it.
class Bell {
 public:
  // After the condition has changed: wakes all who sleep.
  void ring();

  void listen() { listeners_.fetch_add(1); }
  void leave() { listeners_.fetch_sub(1); }
  uint32_t count() const { return rings_.load(); }

  // Sleeps until a ring after `count` was read, or for at most `timeout`. May return early.
  void sleep(uint32_t count, std::chrono::nanoseconds timeout);

 private:
  std::atomic<uint32_t> rings_;
  std::atomic<uint32_t> listeners_;
};

}  // namespace fsdp
