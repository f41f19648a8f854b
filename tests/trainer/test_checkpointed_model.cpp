#include <gtest/gtest.h>
#include <train/trainer.h>

namespace fsdp {
namespace {

// What a run says that is to end where the activations of its model are checkpointed.
std::string errors_of(const std::string& mode, int every) {
  TrainConfig config;
  config.mode = mode;
  config.model = "gpt2-tiny";
  config.data = "published";
  config.steps = 0;
  config.checkpoint_every = every;
  FsdpImplementation fsdp;
  fsdp.make_strategy = [](const TrainConfig&, Workload workload,
                          std::shared_ptr<Communicator>) -> std::unique_ptr<Strategy> {
    workload.build();
    throw std::logic_error("the model is built");
  };
  fsdp.shard_layout = [](const TrainConfig&, const Workload& workload) -> ShardLayout {
    workload.build();
    throw std::logic_error("the model is built");
  };
  fsdp.checkpoint_blocks = [](Module&, int every) {
    throw std::logic_error("every block of " + std::to_string(every) + " is checkpointed");
  };
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_training(config, fsdp, "fsdp train"), 1);
  testing::internal::GetCapturedStdout();
  return testing::internal::GetCapturedStderr();
}

TEST(ActivationsOfTraining, are_checkpointed_in_every_mode_if_the_config_says_so) {
  for (const char* mode : {"single", "ddp", "fsdp"}) {
    const std::string without = errors_of(mode, 0), with = errors_of(mode, 3);
    EXPECT_NE(without.find("the model is built"), std::string::npos) << mode << ": " << without;
    EXPECT_NE(with.find("every block of 3 is checkpointed"), std::string::npos)
        << mode << ": " << with;
  }
}

}  // namespace
}  // namespace fsdp
