#pragma once

#include <cstdint>

namespace fsdp {

// Finds out which calls of a module a backward pass runs for the second time, as a checkpoint of
// the user's own does: it calls the module without gradients in forward, and in backward again,
// with gradients and a pass of its own inside the pass that runs. The outer pass may have reached
// nothing else of the model then, so this call has to count as a sign of it.
class UnrecordedCalls {
 public:
  // A forward begins that records gradients: earlier calls, as those of an evaluation, will not run
  // again.
  void forget() { calls_ = 0; }

  // Call it when a call of the module has returned. Returns whether the pass under way has run it
  // for the second time.
  bool run_again();

 private:
  int64_t calls_{};  // without gradients and outside of backward passes
};

}  // namespace fsdp
