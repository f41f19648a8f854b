#include <common/expect_text.h>

#include "untrained_strategy.h"

namespace fsdp {
namespace {

// The test replaces the functions that build the model and checkpoint activations. Each replacement
// throws an exception, which ends the run and shows that the trainer has called it.
TEST(ActivationCheckpointing,
     training_in_every_mode_checkpoints_activations_if_the_config_asks_for_it) {
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
  for (const Mode mode : {Mode::single, Mode::ddp, Mode::fsdp}) {
    TrainConfig config;
    config.ranks.mode = mode;
    config.model.name = "gpt2-tiny";
    config.data.kind = DataKind::published;
    config.training.steps = 0;
    EXPECT_CONTAINS(train(fsdp, config).errors, "the model is built");
    config.memory.activation_checkpoint_every = 3;
    EXPECT_CONTAINS(train(fsdp, config).errors, "every block of 3 is checkpointed");
  }
}

}  // namespace
}  // namespace fsdp
