#pragma once

#include <cstdint>

namespace fsdp {

// Counts the floating-point operations of the matrix products and attentions that this process
// calls, on any thread, while this object lives. [m, k] x [k, n] counts 2 m n k. Attention counts
// two products in forward and five in backward, whole even if a mask hides half of them (as
// PyTorch's FlopCounterMode counts). Several counters may live at a time.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  // Returns the number of floating-point operations counted since the last take() or, at the first
  // call, since this object was made.
  int64_t take();

 private:
  int64_t taken_;  // number of operations that this process had counted at the last take()
};

}  // namespace fsdp
