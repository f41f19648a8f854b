#include <optim/loss_scaler.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

namespace fsdp {

LossScaler::LossScaler(int64_t scale, int64_t growth_interval, int64_t finite_steps)
    : scale_(scale), growth_interval_(growth_interval), finite_steps_(finite_steps) {
  if (scale < 1 || scale > kLargest || !std::has_single_bit(static_cast<uint64_t>(scale))) {
    throw std::invalid_argument("loss scale " + std::to_string(scale) +
                                ": takes a power of two from 1 to " + std::to_string(kLargest));
  }
  if (growth_interval < 1) {
    throw std::invalid_argument("growth interval " + std::to_string(growth_interval) +
                                ": takes a number of steps above 0");
  }
}

void LossScaler::update(bool finite) {
  if (!finite) {
    scale_ = std::max<int64_t>(1, scale_ / 2);
    finite_steps_ = 0;
  } else if (++finite_steps_ >= growth_interval_) {
    scale_ = std::min(kLargest, scale_ * 2);
    finite_steps_ = 0;
  }
}

}  // namespace fsdp
