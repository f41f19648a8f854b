#include <config/train_config.h>
#include <gtest/gtest.h>
#include <train/memory_check.h>

#include <common/expect_text.h>

#include "unmade_run.h"

namespace fsdp {
namespace {

// Each of two ranks needs 4 bytes for each parameter, gradient and moment (1,600 parameters, two
// moments), 4 bytes for the step count and 8 bytes for the loss that it sends.
TEST(MemoryCheck, a_run_is_refused_with_less_memory_than_a_step_needs_on_all_ranks) {
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

// One process holds the parameters and the gradients, and 8 bytes for the loss.
TEST(MemoryCheck, a_run_of_only_one_microbatch_needs_memory_for_parameters_and_gradients_only) {
  TrainConfig config = config_of("single");
  config.training.batch = config.training.microbatches = 8;
  config.training.only_microbatch = 3;
  const int64_t needed = 2 * 4 * 1600 + 8;
  require_enough_memory(config, layout_on(1), {}, "shm", 1, needed);
  EXPECT_CONTAINS(error_of<std::runtime_error>([&] {
                    require_enough_memory(config, layout_on(1), {}, "shm", 1, needed - 1);
                  }),
                  "--mode single of ");
}

// The error must advise only options that the run does not use yet.
TEST(MemoryCheck, the_error_about_too_little_memory_advises_only_options_not_used_yet) {
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

// Each of four ranks holds a quarter of the parameters and of the two moments, and a step count. In
// a step a rank unshards all parameters; with the gradients it needs at most the memory of three
// whole copies of the parameters.
TEST(MemoryCheck, the_memory_check_of_fsdp_requires_less_than_that_of_replicas) {
  TrainConfig config = config_of("fsdp", 1);
  config.model.name = "a model";
  config.ranks.world = 4;
  const int64_t whole = 4 * 1600;
  const auto require = [&](int64_t of_rank) {
    require_enough_memory(config, layout_on(4), {}, "shm", 4, 4 * of_rank);
  };
  // The call throws nothing, because a rank of FSDP needs at most three times the bytes of all
  // parameters. A replica would need four times these bytes.
  require(3 * whole);
  EXPECT_CONTAINS(error_of<std::runtime_error>([&] { require(3 * whole / 4 + 4 + whole - 1); }),
                  "--mode fsdp of a model needs ");
}

// The checkpoint has 4 bytes for each parameter and moment, which rank 0 copies.
TEST(MemoryCheck, the_memory_check_includes_the_copy_that_save_async_makes) {
  TrainConfig config = config_of("ddp", 1);
  config.ranks.world = 2;
  const int64_t step = 2 * (16 * 1600 + 4 + 8), whole = 12 * 1600;
  const auto needs = [&](int64_t bytes) {
    require_enough_memory(config, layout_on(2), {}, "shm", 2, bytes);
    return error_of<std::runtime_error>(
        [&] { require_enough_memory(config, layout_on(2), {}, "shm", 2, bytes - 1); });
  };
  needs(step);
  config.checkpoint.async = true;
  EXPECT_CONTAINS(needs(step + whole), "take no --save-async, or --mode fsdp");
}

}  // namespace
}  // namespace fsdp
