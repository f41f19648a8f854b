#include <config/train_config.h>
#include <gtest/gtest.h>
#include <prediction/prediction.h>
#include <prediction/step_time.h>
#include <train/checkpoint_room.h>
#include <train/memory_check.h>
#include <trainer/mode_of.h>

#include "unmade_run.h"

// What no training shows: tests/properties and tests/extensions compare the predictions of all
// modes and options with what was measured.
namespace fsdp {
namespace {

// Four units whose whole parameters take 256 (root), 384 (a), 512 (b) and 128 (c) bytes.
ShardLayout four_units() {
  ShardLayout layout;
  layout.world_size = 2;
  layout.units = {{"root", 64, true, true},
                  {"a", 96, false, true},
                  {"b", 128, false, true},
                  {"c", 32, false, true}};
  layout.parameters = {{"r", 0, 0, 50, true},
                       {"a.x", 1, 0, 40, true},
                       {"a.y", 1, 48, 30, true},
                       {"b.z", 2, 0, 120, true},
                       {"c.w", 3, 0, 10, true}};
  return layout;
}

TrainConfig config_of(const std::string& mode, int64_t steps = 5) {
  TrainConfig config;
  config.ranks.mode = mode_of(mode);
  config.training.steps = steps;
  return config;
}

// Of as many ranks as the layout is made for: an evaluation, or a later step.
Schedule schedule_of(TrainConfig config, const ShardLayout& layout) {
  config.ranks.world = layout.world_size;
  return schedule(config, layout, /*rank=*/0, /*first=*/config.training.steps == 0);
}

std::optional<int64_t> live(const Schedule& schedule, Phase phase, MemoryClass cls) {
  return predict_memory(schedule, "shm")
      .bytes[static_cast<size_t>(phase)][static_cast<size_t>(cls)];
}

TEST(PredictedStepTime, follows_the_limit_of_each_direction) {
  // The pictures of the handout of task 6: 34 or 26 ms in forward, 64 or 48 ms in backward.
  const std::vector<UnitTime> units{{0, 0}, {6, 12}, {6, 12}, {6, 12}};
  const auto total = [&](int forward, int backward) {
    TrainConfig config;
    config.sharding.forward_limit = forward;
    config.sharding.backward_limit = backward;
    return predict_step_time(config, units, [](const auto&) { return 4; }).total();
  };
  EXPECT_EQ(total(1, 2), 34 + 48);
  EXPECT_EQ(total(2, 1), 26 + 64);
}

TEST(PredictedLiveBytes, have_no_value_for_classes_that_are_not_predicted) {
  const Schedule step = schedule_of(config_of("fsdp"), four_units());
  EXPECT_FALSE(live(step, Phase::init, MemoryClass::shards));
  EXPECT_FALSE(live(step, Phase::forward, MemoryClass::rest));
  ShardLayout layout = four_units();
  layout.units[2].name = "a.b";
  const Schedule nested = schedule_of(config_of("fsdp"), layout);
  EXPECT_FALSE(live(nested, Phase::forward, MemoryClass::gathered));
  EXPECT_FALSE(live(nested, Phase::backward, MemoryClass::gradients));
  EXPECT_EQ(live(nested, Phase::backward, MemoryClass::shards), 640);
}

// Two units are gathered at a time, beside the root until it is read no more.
TEST(PredictedLiveBytes, of_a_root_that_is_read_behind_all_units_are_gone_before_these_come_back) {
  TrainConfig config = config_of("fsdp");
  config.ranks.world = 2;
  const auto gathered = [&](std::optional<size_t> units_before_readers) {
    const ModelTraces traces = chain_of(config, four_units(), {}, units_before_readers);
    return live(schedule(config, four_units(), 0, /*first=*/false, traces), Phase::backward,
                MemoryClass::gathered);
  };
  EXPECT_EQ(gathered({}), 256 + 384 + 512);
  EXPECT_EQ(gathered(3), 384 + 512);
  EXPECT_EQ(gathered(2), 256 + 512 + 128);
  EXPECT_EQ(gathered(1), 256 + 384 + 512);
}

using Bytes = std::map<std::string, int64_t>;

TEST(PredictedEvaluation, is_a_forward_that_gathers_and_frees_every_unit) {
  TrainConfig config = config_of("fsdp", /*steps=*/0);
  config.sharding.reshard_after_forward = false;
  config.optimizer.clip = 1.0;
  const Schedule evaluation = schedule_of(config, four_units());
  EXPECT_EQ(live(evaluation, Phase::forward, MemoryClass::gathered), 256 + 512);
  EXPECT_EQ(live(evaluation, Phase::forward, MemoryClass::communication), 8);
  EXPECT_FALSE(live(evaluation, Phase::backward, MemoryClass::gathered));
  EXPECT_EQ(predict_comm_bytes(evaluation), (Bytes{{"all_gather", 640}, {"metrics", 16}}));
}

TEST(PredictedTraffic, ddp_rounds_each_bucket_up_to_a_multiple_of_the_world_size) {
  ShardLayout layout;
  layout.world_size = 3;
  layout.units = {{"root", 263'184, true, true}};
  layout.parameters = {
      {"p0", 0, 0, 1000, true}, {"p1", 0, 1008, 1 << 18, true}, {"p2", 0, 263'152, 16, true}};
  EXPECT_EQ(predict_comm_bytes(schedule_of(config_of("ddp"), layout)),
            (Bytes{{"all_reduce", 4 * 4 * (18 / 3 + 263'154 / 3)}, {"metrics", 32}}));
}

// One parameter of 1,600 elements, in a unit of its own on so many ranks.
ShardLayout layout_on(int ranks) {
  ShardLayout layout;
  layout.world_size = ranks;
  layout.units = {{"block", 1600, /*root=*/false, /*trainable=*/true}};
  layout.parameters = {{"block.weight", 0, 0, 1600, /*trainable=*/true}};
  return layout;
}

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

// Of 1,600 parameters with two moments each, 4 bytes.
TEST(RoomForCheckpoints, is_that_of_all_that_a_run_keeps) {
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
  need(10, 0, 3, 4);  // after 3, 6, 9 and 10
  need(9, 0, 3, 3);
  need(10, 6, 3, 2);  // after 9 and 10
  need(10, 0, 100, 1);
  EXPECT_EQ(
      refusal(each - 1),
      "--checkpoint-dir run: has 19,199 bytes free, too few for 1 checkpoint of 19,200 bytes; "
      "give another folder");
  config.checkpoint.keep = 1;  // and the one that is written
  need(10, 0, 1, 2);
  EXPECT_CONTAINS(refusal(2 * each - 1), "give --keep, a larger --save-every or another folder");
  config.optimizer.kind = OptimizerOptions::Kind::sgd;
  EXPECT_NO_THROW(require_room_for_checkpoints(config, layout_on(2), each));
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
