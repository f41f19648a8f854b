#include <config/train_config.h>
#include <gtest/gtest.h>
#include <prediction/prediction.h>
#include <prediction/step_time.h>

#include "unmade_run.h"

// Tests predictions that no training can confirm. For all other predictions, tests/properties and
// tests/extensions compare those of all modes and options with measured values.
namespace fsdp {
namespace {

// Returns the layout of four units on two ranks. The whole parameters of a unit, with padding, take
// 256 (root), 384 (a), 512 (b) and 128 (c) bytes.
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

// Returns the schedule of an evaluation if `config` trains no step, otherwise that of a step after
// the first. The number of ranks is that of the layout.
Schedule schedule_of(TrainConfig config, const ShardLayout& layout) {
  config.ranks.world = layout.world_size;
  return schedule(config, layout, /*rank=*/0, /*first=*/config.training.steps == 0);
}

std::optional<int64_t> live(const Schedule& schedule, Phase phase, MemoryClass cls) {
  return predict_memory(schedule, "shm")
      .bytes[static_cast<size_t>(phase)][static_cast<size_t>(cls)];
}

TEST(LiveBytesPrediction, predict_memory_returns_nothing_for_live_bytes_that_it_cannot_predict) {
  const Schedule step = schedule_of(config_of("fsdp"), four_units());
  EXPECT_FALSE(live(step, Phase::init, MemoryClass::shards));
  EXPECT_FALSE(live(step, Phase::forward, MemoryClass::other));
  ShardLayout layout = four_units();
  layout.units[2].name = "a.b";
  const Schedule nested = schedule_of(config_of("fsdp"), layout);
  EXPECT_FALSE(live(nested, Phase::forward, MemoryClass::gathered));
  EXPECT_FALSE(live(nested, Phase::backward, MemoryClass::gradients));
  EXPECT_EQ(live(nested, Phase::backward, MemoryClass::shards), 640);
}

// In backward, two units are unsharded at a time. In addition the root is unsharded until the last
// unit that reads its parameters has run.
TEST(LiveBytesPrediction,
     predicted_live_bytes_include_the_root_in_backward_only_until_its_last_reader) {
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

TEST(PredictedEvaluation, the_prediction_of_an_evaluation_reshards_every_unit_after_its_forward) {
  TrainConfig config = config_of("fsdp", /*steps=*/0);
  config.sharding.reshard_after_forward = false;
  config.optimizer.clip = 1.0;
  const Schedule evaluation = schedule_of(config, four_units());
  EXPECT_EQ(live(evaluation, Phase::forward, MemoryClass::gathered), 256 + 512);
  EXPECT_EQ(live(evaluation, Phase::forward, MemoryClass::communication), 8);
  EXPECT_FALSE(live(evaluation, Phase::backward, MemoryClass::gathered));
  EXPECT_EQ(predict_comm_bytes(evaluation), (Bytes{{"all_gather", 640}, {"metrics", 16}}));
}

TEST(PredictedTraffic,
     predicted_traffic_of_ddp_rounds_each_bucket_up_to_a_multiple_of_the_world_size) {
  ShardLayout layout;
  layout.world_size = 3;
  layout.units = {{"root", 263'184, true, true}};
  layout.parameters = {
      {"p0", 0, 0, 1000, true}, {"p1", 0, 1008, 1 << 18, true}, {"p2", 0, 263'152, 16, true}};
  EXPECT_EQ(predict_comm_bytes(schedule_of(config_of("ddp"), layout)),
            (Bytes{{"all_reduce", 4 * 4 * (18 / 3 + 263'154 / 3)}, {"metrics", 32}}));
}

}  // namespace
}  // namespace fsdp
