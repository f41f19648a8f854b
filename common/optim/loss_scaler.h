#pragma once

#include <cstdint>

namespace fsdp {

// The factor by which a loss is multiplied before backward, so that small gradients do not become
// zero in fp16. It changes as in PyTorch's GradScaler.
// - The gradients are divided by the scale later. The scale is a power of two, so neither operation
//   changes the bits of a number unless it overflows or underflows.
// - The caller skips a step whose gradients are not all finite.
// - Every rank must call the same functions with the same arguments. This is possible because all
//   ranks know the norm of all gradients, which is finite only if all of them are.
class LossScaler {
 public:
  static constexpr int64_t kLargest = int64_t{1} << 24;

  // `finite_steps`: the number of finite steps since the scale changed last. Throws
  // std::invalid_argument unless the scale is a power of two from 1 to kLargest and the interval is
  // above 0.
  explicit LossScaler(int64_t scale = 65536, int64_t growth_interval = 2000,
                      int64_t finite_steps = 0);

  int64_t scale() const { return scale_; }
  int64_t growth_interval() const { return growth_interval_; }
  int64_t finite_steps() const { return finite_steps_; }

  // Call it after each step. If the gradients were not finite, halves the scale, but not below 1.
  // After growth_interval() steps in a row with finite gradients, doubles it, but not above
  // kLargest.
  void update(bool finite);

 private:
  int64_t scale_, growth_interval_, finite_steps_;
};

}  // namespace fsdp
