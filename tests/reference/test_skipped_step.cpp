#include <gtest/gtest.h>

#include "trained.h"

namespace fsdp {
namespace {

// A skipped step allocates the optimizer's state too. So the memory of a run does not depend on
// which steps are skipped.
TEST(SkippedStep, a_run_whose_loss_scale_skips_all_steps_has_the_predicted_memory) {
  const TemporaryFolder folder;
  for (const Arranged& how : {Arranged{"fsdp", 2}, Arranged{"ddp", 2}, Arranged{"single", 2}}) {
    SCOPED_TRACE(named(how));
    TrainConfig config = config_of(how, 2, 3);
    config.precision.policy = {at::kHalf, at::kHalf};
    config.precision.loss_scaler = LossScaler(LossScaler::kLargest, 2);
    const auto last = train(config, folder);
    EXPECT_EQ(last["skipped_steps"], 3);
    EXPECT_EQ(last["live_bytes_mismatches"], 0);
  }
}

}  // namespace
}  // namespace fsdp
