#pragma once

#include <chrono>
#include <cstddef>

namespace fsdp {

// Prints on stderr how far a search is, once it has taken two seconds: on a terminal a line that is
// replaced twice a second and removed at the end, otherwise one line.
class SearchProgress {
 public:
  SearchProgress();
  void planned();  // call it after each plan
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  const bool terminal_;
  Clock::time_point next_;  // when the next line is due
  size_t plans_{};
  bool printed_{};
};

}  // namespace fsdp
