#include <nn/models.h>

#include "trained.h"

namespace fsdp {
namespace {

TEST(PublishedRun, a_run_of_the_model_small_has_the_published_losses_and_parameter_sum) {
  const ModelInfo info = model_info("small");
  TrainConfig config = config_of({"fsdp", 2}, 2, info.steps);
  config.model.name = info.name;
  config.training.batch = info.batch;
  config.training.seq = info.seq;
  config.optimizer.lr = info.lr;
  config.optimizer.no_decay = "";
  config.optimizer.clip.reset();
  const auto lines = trained(config, TemporaryFolder());
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_NEAR(lines[0]["loss"], 7.1115727425, 1e-6 * 7.1);
  EXPECT_NEAR(lines[4]["loss"], 7.0903296471, 1e-6 * 7.1);
  EXPECT_NEAR(lines[5]["param_sum"], 2286.522560, 1e-6 * 2286);
  EXPECT_NEAR(lines[5]["param_sum_change"], 0.369358, 1e-3 * 0.37);
}

}  // namespace
}  // namespace fsdp
