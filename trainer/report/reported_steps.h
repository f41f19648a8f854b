#pragma once

#include <cstdint>

namespace fsdp {

// The steps of a run for which a line is printed and logged.
struct ReportedSteps {
  int64_t all;       // steps of the whole run
  int64_t every{1};  // of --log-every

  // Returns whether step number `step`, from 1 on, has a line. The first step, the last one and
  // each multiple of `every` have one.
  bool have(int64_t step) const { return step == 1 || step == all || step % every == 0; }
};

}  // namespace fsdp
