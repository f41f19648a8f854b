#pragma once

#include <cstdint>

namespace fsdp {

// Says for which steps of a run a line is printed and logged.
struct ReportedSteps {
  int64_t all;       // number of steps of the whole run
  int64_t every{1};  // the value of --log-every

  // Returns whether a line is printed and logged for step number `step`, counted from 1: for the
  // first step, the last one, and each multiple of `every`.
  bool have(int64_t step) const { return step == 1 || step == all || step % every == 0; }
};

}  // namespace fsdp
