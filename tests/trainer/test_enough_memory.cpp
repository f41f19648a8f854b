#include <config/train_config.h>
#include <gtest/gtest.h>
#include <train/memory_check.h>

#include <common/expect_text.h>

#include "unmade_run.h"

namespace fsdp {
namespace {

// Parameters, gradients and two moments, 4 bytes each, a step count, and the loss on its way.
TEST(EnoughMemory, is_that_of_what_a_step_holds_on_every_rank) {
  TrainConfig config = config_of("ddp", 1);
  config.model.name = "a model";
  config.ranks.world = 2;
  const int64_t needed = 2 * (16 * 1600 + 4 + 8);
  require_enough_memory(config, layout_on(2), {}, "shm", 2, needed);
  EXPECT_EQ(
      error_of<std::runtime_error>(
          [&] { require_enough_memory(config, layout_on(2), {}, "shm", 2, needed - 1); }),
      "--mode ddp of a model needs 51,224 bytes on 2 ranks, without activations, and this "
      "machine has 51,223; take --mode fsdp, which shards it, or fewer ranks, or --offload optimizer "
      "--offload-dir DIR, or --checkpoint-activations all, or a smaller --model");
}

// Nothing that the run has already.
TEST(EnoughMemory, that_is_missing_in_a_sharded_run_is_not_found_by_sharding_it) {
  TrainConfig config = config_of("fsdp", 1);
  config.model.name = "a model";
  config.ranks.world = 2;
  config.memory.offload_dir = "/";
  config.memory.activation_checkpoint_every = 1;
  EXPECT_CONTAINS(error_of<std::runtime_error>(
                      [&] { require_enough_memory(config, layout_on(2), {}, "shm", 2, 1); }),
                  "this machine has 1; take ranks on more machines, started by torchrun");
  config.sharding.shard_size = 1;
  config.sharding.reshard_after_forward = false;
  EXPECT_CONTAINS(error_of<std::runtime_error>(
                      [&] { require_enough_memory(config, layout_on(2), {}, "shm", 2, 1); }),
                  "; take --strategy full, or ranks on more machines, started by torchrun");
}

// A rank of four holds a quarter of the parameters and of two moments, with a step count. In a step
// it gathers all parameters; with the gradients it needs no more than three whole copies.
TEST(EnoughMemory, is_less_for_shards) {
  TrainConfig config = config_of("fsdp", 1);
  config.model.name = "a model";
  config.ranks.world = 4;
  const int64_t whole = 4 * 1600;
  const auto require = [&](int64_t of_rank) {
    require_enough_memory(config, layout_on(4), {}, "shm", 4, 4 * of_rank);
  };
  require(3 * whole);  // throws nothing; replicas would need more than four
  EXPECT_CONTAINS(error_of<std::runtime_error>([&] { require(3 * whole / 4 + 4 + whole - 1); }),
                  "--mode fsdp of a model needs ");
}

}  // namespace
}  // namespace fsdp
