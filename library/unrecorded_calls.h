#pragma once

#include <cstdint>

namespace fsdp {

// Detects whether a call of a module is the second run of an earlier call, in a backward pass. A
// user's own checkpoint makes such calls: in forward it calls the module without gradients; in
// backward it calls the module again, with gradients, and then runs an inner pass inside the outer
// pass under way. Before the second run, the outer pass may have reached no other part of the
// model, so the second run must count as the start of the outer pass.
class UnrecordedCalls {
 public:
  // Call forget() when a forward that records gradients begins: earlier calls, such as those of an
  // evaluation, will not run again.
  void forget() { calls_ = 0; }

  // Call run_again() when a call of the module has returned. Returns whether that call was the
  // second run of an earlier call.
  bool run_again();

 private:
  // Number of calls of the module that ran without gradients, outside of backward passes, and that
  // have not run again in a backward pass.
  int64_t calls_{};
};

}  // namespace fsdp
