#pragma once

#include <base/mapping.h>
#include <unistd.h>

#include <atomic>

namespace fsdp {

// A flag in shared memory that one rank sets and other ranks wait for without a collective. Make
// the flag before the ranks are forked.
class SharedFlag {
 public:
  void set() const { flag() = true; }
  // Waits until the flag is set, for at most 0.3 s. A rank calls wait() to give another rank time
  // to set the flag too early: the flag must not be set before this rank continues.
  void wait() const {
    for (int i = 0; i < 300 && !flag(); ++i)
      usleep(1000);
  }

 private:
  std::atomic<bool>& flag() const { return *reinterpret_cast<std::atomic<bool>*>(memory_.base()); }

  Mapping memory_{"a shared flag", sizeof(std::atomic<bool>)};
};

}  // namespace fsdp
