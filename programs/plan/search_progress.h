#pragma once

#include <chrono>
#include <cstddef>

namespace fsdp {

// Prints on stderr how many plans ./fsdp plan --search has made. It prints nothing in the first two
// seconds; then, on a terminal, a line that is replaced twice a second and removed at the end;
// otherwise one line only.
class SearchProgress {
 public:
  SearchProgress();
  void planned();  // call it after each plan that the search makes
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  const bool terminal_;
  Clock::time_point next_;  // time from which on planned() may print the next line of progress
  size_t plans_{};
  bool printed_{};
};

}  // namespace fsdp
