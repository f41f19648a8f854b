#pragma once

#include <cstdint>

namespace fsdp {

// The factor by which a loss is multiplied before backward, so that small gradients do not become
// zero in fp16. It changes as in PyTorch's GradScaler.
// - The caller divides the gradients by the scale later. The scale is a power of two, so neither
//   the multiplication nor the division rounds a number unless it overflows or underflows.
// - The caller skips a step whose gradients are not all finite.
// - Every rank must call the same functions with the same arguments. This is possible because all
//   ranks know the norm of all gradients, which is finite only if all gradients are finite.
class LossScaler {
 public:
  static constexpr int64_t kLargest = int64_t{1} << 24;

  // `finite_steps`: the number of steps with finite gradients since update() last set the scale.
  // Throws std::invalid_argument unless the scale is a power of two from 1 to kLargest and the
  // interval is above 0.
  explicit LossScaler(int64_t scale = 65536, int64_t growth_interval = 2000,
                      int64_t finite_steps = 0);

  int64_t scale() const { return scale_; }
  int64_t growth_interval() const { return growth_interval_; }
  int64_t finite_steps() const { return finite_steps_; }

  // Call update() after each step. If the gradients of the step were not finite, it halves the
  // scale, but not below 1. After growth_interval() steps in a row with finite gradients, it
  // doubles the scale, but not above kLargest.
  void update(bool finite);

 private:
  int64_t scale_, growth_interval_, finite_steps_;
};

}  // namespace fsdp
