#pragma once

#include <reproduce/long_run_files.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace fsdp {

// What a long run has taken so far.
struct RunUsage {
  double seconds{};  // without the time between an interruption and the next start
  // [bytes] The most that all processes together have held, and had swapped out.
  int64_t peak{}, swapped{};
};

// Reads what a RunWatcher wrote to files.usage; zeros if it has written nothing.
RunUsage read_usage(const LongRunFiles& files);

// Measures a run and writes the result to files.usage; called once a second by run_child(). Adds to
// what files.usage has, because the run may go on after an interruption. After each step, shows on
// stderr how far the run is.
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
  const RunUsage before_;  // this start
  RunUsage usage_{before_};
  int64_t shared_of_others_;  // [bytes] the shared memory that other programs hold
  size_t shown_steps_{};
};

}  // namespace fsdp
