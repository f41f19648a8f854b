#pragma once

#include <cstdint>

namespace fsdp {

// By what a loss is multiplied before backward, so that small gradients do not become zero in fp16,
// as PyTorch's GradScaler finds it. The gradients are divided by it later. It is a power of two, so
// both change no bit of a number that neither overflows nor underflows. A step whose gradients are
// not all finite is skipped. Every rank calls the same functions with the same arguments: the norm
// of all gradients says whether they are finite, and all ranks know it.
class LossScaler {
 public:
  static constexpr int64_t kLargest = int64_t{1} << 24;

  // `finite_steps`: those since the scale has changed last. Throws std::invalid_argument unless the
  // scale is a power of two from 1 to kLargest, and the interval is above 0.
  explicit LossScaler(int64_t scale = 65536, int64_t growth_interval = 2000,
                      int64_t finite_steps = 0);

  int64_t scale() const { return scale_; }
  int64_t growth_interval() const { return growth_interval_; }
  int64_t finite_steps() const { return finite_steps_; }

  // After a step. Halves the scale, but not below 1, if the gradients were not finite. Doubles it,
  // but not above kLargest, after every growth_interval() steps in a row in which they were.
  void update(bool finite);

 private:
  int64_t scale_, growth_interval_, finite_steps_;
};

}  // namespace fsdp
