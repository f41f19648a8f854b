#include <gtest/gtest.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <train/trainer.h>

#include <base/whole_file.h>
#include <common/temporary_folder.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include <task7_integration/tiny_training.h>

namespace fsdp {
namespace {

// Trains `steps` steps with a profile. Returns the number of calls of the optimizer's kernel in the
// profile.
int64_t updates_in_profile_of(int64_t steps) {
  const TemporaryFolder folder;
  TrainConfig config = tiny_config(2);
  config.training.steps = steps;
  config.training.batch = 4;
  config.training.seq = 8;
  config.reports.profile = folder.path() + "/profile.json";
  testing::internal::CaptureStdout();
  const int status = run_training(config, {make_fsdp_strategy, shard_layout});
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0);
  const auto trace = nlohmann::json::parse(content_of(config.reports.profile));
  return std::ranges::count_if(trace.at("traceEvents"), [](const nlohmann::json& event) {
    return event.value("name", "") == "aten::_fused_adamw_";
  });
}

TEST(TrainingProfile, the_profile_of_a_training_has_the_operators_of_its_last_two_steps) {
  EXPECT_EQ(updates_in_profile_of(4), 2);
}

TEST(TrainingProfile, the_profile_of_a_training_of_one_step_has_that_step) {
  EXPECT_EQ(updates_in_profile_of(1), 1);
}

}  // namespace
}  // namespace fsdp
