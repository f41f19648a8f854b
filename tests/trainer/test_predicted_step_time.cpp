#include <config/train_config.h>
#include <gtest/gtest.h>
#include <prediction/step_time.h>

namespace fsdp {
namespace {

TEST(PredictedStepTime, predicted_forward_and_backward_times_depend_on_their_own_prefetch_limits) {
  // As in the pictures of the handout of task 6, forward takes 34 ms with limit 1 and 26 ms with
  // limit 2, and backward takes 64 ms and 48 ms.
  const std::vector<UnitTime> units{{0, 0}, {6, 12}, {6, 12}, {6, 12}};
  const auto total = [&](int forward, int backward) {
    TrainConfig config;
    config.sharding.forward_limit = forward;
    config.sharding.backward_limit = backward;
    return predict_step_time(config, units, [](const auto&) { return 4; }).total();
  };
  EXPECT_EQ(total(1, 2), 34 + 48);
  EXPECT_EQ(total(2, 1), 26 + 64);
}

}  // namespace
}  // namespace fsdp
