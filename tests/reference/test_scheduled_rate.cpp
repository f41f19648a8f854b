#include <gtest/gtest.h>

#include <memory>

#include "trained.h"

namespace fsdp {
namespace {

TEST(ScheduledRate, the_first_step_of_a_warmup_equals_a_step_with_the_same_constant_learning_rate) {
  const TemporaryFolder folder;
  for (const Arranged& how : {Arranged{"fsdp", 2}, Arranged{"ddp", 2}, Arranged{"single", 2}}) {
    SCOPED_TRACE(named(how));
    TrainConfig scheduled = config_of(how, 2, 1);
    scheduled.optimizer.warmup = 3;
    scheduled.optimizer.lr_factor = std::make_shared<double>(1);
    TrainConfig constant = config_of(how, 2, 1);
    constant.optimizer.lr = scheduled.optimizer.lr / 4;
    EXPECT_EQ(train(scheduled, folder)["param_sha256"], train(constant, folder)["param_sha256"]);
  }
}

}  // namespace
}  // namespace fsdp
