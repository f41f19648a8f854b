#pragma once

#include <reproduce/long_run_files.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace fsdp {

// The time that a long training run has taken so far, and the memory that it has used.
struct RunUsage {
  // The run's time, without the time between an interruption of the run and its next start.
  double seconds{};
  // [bytes] `peak`: the most memory that all processes of the run held together. `swapped`: the
  // most that they had swapped out.
  int64_t peak{}, swapped{};
};

// Reads the usage that a RunWatcher wrote to the file files.usage; returns zeros if it has written
// nothing.
RunUsage read_usage(const LongRunFiles& files);

// Measures time and memory of a long training run; run_child() calls it once a second. It continues
// the numbers in the file files.usage and writes the new ones there, because the run may go on
// after an interruption. After each step it prints the run's progress on stderr.
class RunWatcher {
 public:
  RunWatcher(std::string name, int64_t steps, const LongRunFiles& files);

  void operator()(int process);

 private:
  void show(double seconds, int64_t held);

  const std::string name_;
  const int64_t steps_;
  const LongRunFiles& files_;
  const std::chrono::steady_clock::time_point start_{std::chrono::steady_clock::now()};
  const RunUsage before_;  // usage of this run before it was last interrupted; zeros: it was not
  RunUsage usage_{before_};
  int64_t shared_of_others_;  // [bytes] the shared memory that other programs hold
  size_t shown_steps_{};
};

}  // namespace fsdp
