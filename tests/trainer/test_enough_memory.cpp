#include <gtest/gtest.h>
#include <train/preparation.h>

#include <common/expect_text.h>

namespace fsdp {
namespace {

// One parameter of 1,600 elements, in a unit of its own on so many ranks.
ShardLayout layout_on(int ranks) {
  ShardLayout layout;
  layout.world_size = ranks;
  layout.units = {{"block", 1600, /*root=*/false, /*trainable=*/true}};
  layout.parameters = {{"block.weight", 0, 0, 1600, /*trainable=*/true}};
  return layout;
}

TrainConfig config_of(const std::string& mode, int ranks) {
  TrainConfig config;
  config.mode = mode;
  config.model = "a model";
  config.world = ranks;
  config.steps = 1;
  return config;
}

// Parameters, gradients and two moments, 4 bytes each, a step count, and the loss on its way.
TEST(EnoughMemory, is_that_of_what_a_step_holds_on_every_rank) {
  const TrainConfig config = config_of("ddp", 2);
  const int64_t needed = 2 * (16 * 1600 + 4 + 8);
  require_enough_memory(config, layout_on(2), {}, "shm", 2, needed);
  EXPECT_EQ(error_of<std::runtime_error>(
                [&] { require_enough_memory(config, layout_on(2), {}, "shm", 2, needed - 1); }),
            "--mode ddp of a model needs 51,224 bytes on 2 ranks, without activations, and this "
            "machine has 51,223; shard it (--mode fsdp), take fewer ranks, or --offload optimizer");
}

TEST(EnoughMemory, is_less_for_shards) {
  EXPECT_NO_THROW(
      require_enough_memory(config_of("fsdp", 4), layout_on(4), {}, "shm", 4, 3 * 4 * 4 * 1600));
}

}  // namespace
}  // namespace fsdp
