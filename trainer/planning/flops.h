#pragma once

#include <ATen/record_function.h>

#include <cstdint>

namespace fsdp {

// Counts the floating point operations of the matrix products and attentions that this thread calls
// while it lives: 2 m n k of [m, k] x [k, n]; of attention those of two products in forward and of
// five in backward, whole where a mask hides half (as PyTorch's FlopCounterMode counts).
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  int64_t take();  // since the last take()

 private:
  at::CallbackHandle handle_;
};

}  // namespace fsdp
