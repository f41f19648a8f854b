#pragma once

#include <base/mapping.h>
#include <unistd.h>

#include <atomic>

namespace fsdp {

// A sign that one rank gives and others wait for, without a collective. Make it before the ranks
// are forked.
class SharedFlag {
 public:
  void set() const { flag() = true; }
  // Returns when the sign was given, or after 0.3 s: for one that must not come before this rank
  // goes on.
  void wait() const {
    for (int i = 0; i < 300 && !flag(); ++i)
      usleep(1000);
  }

 private:
  std::atomic<bool>& flag() const { return *reinterpret_cast<std::atomic<bool>*>(memory_.base()); }

  Mapping memory_{"a sign", sizeof(std::atomic<bool>)};
};

}  // namespace fsdp
