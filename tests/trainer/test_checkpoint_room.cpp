#include <config/train_config.h>
#include <gtest/gtest.h>
#include <train/checkpoint_room.h>

#include <common/expect_text.h>

#include "unmade_run.h"

namespace fsdp {
namespace {

// A checkpoint has 1,600 parameter elements and two moments for each of them, all of 4 bytes.
TEST(CheckpointRoom, a_run_is_refused_without_disk_room_for_all_checkpoints_that_exist_at_once) {
  TrainConfig config = config_of("fsdp", 2);
  config.checkpoint.dir = "run";
  const int64_t each = 3 * 4 * 1600;
  const auto refusal = [&](int64_t room) {
    return error_of<std::runtime_error>(
        [&] { require_room_for_checkpoints(config, layout_on(2), room); });
  };
  const auto need = [&](int64_t steps, int64_t first_step, int64_t every, int64_t checkpoints) {
    config.training.steps = steps;
    config.checkpoint.first_step = first_step;
    config.checkpoint.save_every = every;
    EXPECT_NO_THROW(require_room_for_checkpoints(config, layout_on(2), checkpoints * each));
    EXPECT_CONTAINS(refusal(checkpoints * each - 1), "--checkpoint-dir run: ");
  };
  need(10, 0, 1, 10);
  need(10, 0, 3, 4);  // the run saves after steps 3, 6, 9 and 10
  need(9, 0, 3, 3);
  need(10, 6, 3, 2);  // the run saves after steps 9 and 10
  need(10, 0, 100, 1);
  EXPECT_EQ(
      refusal(each - 1),
      "--checkpoint-dir run: has 19,199 bytes free, too few for 1 checkpoint of 19,200 bytes; "
      "give another folder");
  // With --keep 1 the run keeps one checkpoint, and needs room for a second one while it writes it.
  config.checkpoint.keep = 1;
  need(10, 0, 1, 2);
  EXPECT_CONTAINS(refusal(2 * each - 1), "give --keep, a larger --save-every or another folder");
  config.optimizer.kind = OptimizerOptions::Kind::sgd;
  EXPECT_NO_THROW(require_room_for_checkpoints(config, layout_on(2), each));
}

TEST(CheckpointRoom, a_checkpoint_needs_no_disk_room_for_moments_of_a_frozen_parameter) {
  TrainConfig config = config_of("fsdp", 2);
  ShardLayout layout = layout_on(2);
  EXPECT_EQ(checkpoint_bytes(config, layout), 3 * 4 * 1600);
  layout.parameters[0].trainable = false;
  EXPECT_EQ(checkpoint_bytes(config, layout), 4 * 1600);
}

}  // namespace
}  // namespace fsdp
