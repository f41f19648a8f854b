#pragma once

#include <reproduce/long_run_files.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace fsdp {

// Time and memory of a long run so far.
struct RunUsage {
  double seconds{};  // without the time between an interruption and the next start
  // [bytes] The most memory that all processes together held, and the most that was swapped out.
  int64_t peak{}, swapped{};
};

// Reads the usage that a RunWatcher wrote to files.usage; zeros if it has written nothing.
RunUsage read_usage(const LongRunFiles& files);

// Measures a run; run_child() calls it once a second. It writes the result to files.usage, and adds
// to the values that are there, because the run may continue after an interruption. After each step
// it prints the run's progress on stderr.
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
  const RunUsage before_;  // usage of earlier starts of this run
  RunUsage usage_{before_};
  int64_t shared_of_others_;  // [bytes] the shared memory that other programs hold
  size_t shown_steps_{};
};

}  // namespace fsdp
