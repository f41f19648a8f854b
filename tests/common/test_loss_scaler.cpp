#include <gtest/gtest.h>
#include <optim/loss_scaler.h>

#include <stdexcept>

namespace fsdp {
namespace {

TEST(LossScaler, the_loss_scale_halves_after_an_overflow_and_doubles_after_enough_finite_steps) {
  LossScaler scaler(64, 3, 1);  // scale 64; doubles after 3 finite steps, 1 of them is done
  const auto scale_after = [&](bool finite) {
    scaler.update(finite);
    return scaler.scale();
  };
  EXPECT_EQ(scale_after(true), 64);
  EXPECT_EQ(scale_after(false), 32);
  EXPECT_EQ(scale_after(true), 32);
  EXPECT_EQ(scale_after(true), 32);
  EXPECT_EQ(scaler.finite_steps(), 2);
  EXPECT_EQ(scale_after(true), 64);
  EXPECT_EQ(scaler.finite_steps(), 0);
}

TEST(LossScaler, the_loss_scale_stays_within_its_range) {
  LossScaler least(1);
  least.update(false);
  EXPECT_EQ(least.scale(), 1);
  LossScaler most(LossScaler::kLargest, 1);
  most.update(true);
  EXPECT_EQ(most.scale(), LossScaler::kLargest);
}

TEST(LossScaler, a_loss_scaler_with_an_invalid_scale_or_interval_throws) {
  for (const int64_t scale : {int64_t{0}, int64_t{-2}, int64_t{3}, 2 * LossScaler::kLargest})
    EXPECT_THROW(LossScaler{scale}, std::invalid_argument) << scale;
  EXPECT_THROW(LossScaler(2, 0), std::invalid_argument);
}

}  // namespace
}  // namespace fsdp
