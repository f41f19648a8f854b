#include <config/train_config.h>
#include <prediction/prediction.h>
#include <prediction/step_time.h>

#include <gtest/gtest.h>

// What no training shows: tests/properties and tests/extensions compare the predictions of all
// modes and options with what was measured.
namespace fsdp {
namespace {

constexpr auto kForward = static_cast<size_t>(Phase::forward);
constexpr auto kBackward = static_cast<size_t>(Phase::backward);

// Four units whose whole parameters take 256 (root), 384 (a), 512 (b) and 128 (c) bytes.
ShardLayout four_units(int world_size = 2) {
  ShardLayout layout;
  layout.world_size = world_size;
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

TrainConfig fsdp_config() {
  TrainConfig config;
  config.mode = "fsdp";
  config.steps = 5;
  return config;
}

TrainConfig config_of(const std::string& mode) {
  TrainConfig config = fsdp_config();
  config.mode = mode;
  return config;
}

struct Predicted {
  PredictedBytes bytes;
  std::optional<int64_t> operator()(size_t phase, MemoryClass cls) const {
    return bytes[phase][static_cast<size_t>(cls)];
  }
};

// Of as many ranks as the layout is made for.
Schedule schedule_of(TrainConfig config, const ShardLayout& layout, bool first = false) {
  config.world = layout.world_size;
  return schedule(config, layout, /*rank=*/0, first);
}

Predicted later_step(const TrainConfig& config, const ShardLayout& layout) {
  return {predict_memory(schedule_of(config, layout), "shm").bytes};
}

Predicted first_step(const TrainConfig& config, const ShardLayout& layout) {
  return {predict_memory(schedule_of(config, layout, /*first=*/true), "shm").bytes};
}

std::map<std::string, int64_t> traffic(const TrainConfig& config, const ShardLayout& layout) {
  return predict_comm_bytes(schedule_of(config, layout));
}

TEST(PredictedStepTime, follows_the_limit_of_each_direction) {
  // The pictures of the handout of task 6: 34 or 26 ms in forward, 64 or 48 ms in backward.
  const std::vector<UnitTime> units{{0, 0}, {6, 12}, {6, 12}, {6, 12}};
  const auto total = [&](int forward, int backward) {
    TrainConfig config;
    config.forward_limit = forward;
    config.backward_limit = backward;
    return predict_step_time(config, units, [](const auto&) { return 4; }).total();
  };
  EXPECT_EQ(total(1, 2), 34 + 48);
  EXPECT_EQ(total(2, 1), 26 + 64);
}

TEST(PredictedLiveBytes, have_no_value_for_classes_that_are_not_predicted) {
  auto live = later_step(fsdp_config(), four_units());
  EXPECT_FALSE(live(static_cast<size_t>(Phase::init), MemoryClass::shards));
  EXPECT_FALSE(live(kForward, MemoryClass::rest));
  ShardLayout nested = four_units();
  nested.units[2].name = "a.b";
  live = later_step(fsdp_config(), nested);
  EXPECT_FALSE(live(kForward, MemoryClass::gathered));
  EXPECT_FALSE(live(kBackward, MemoryClass::gradients));
  EXPECT_EQ(live(kBackward, MemoryClass::shards), 640);
}

TEST(PredictedLiveBytes, an_evaluation_is_a_forward_that_frees_every_unit) {
  TrainConfig config = fsdp_config();
  config.steps = 0;
  config.reshard_after_forward = false;
  const Predicted live = first_step(config, four_units());
  EXPECT_EQ(live(kForward, MemoryClass::gathered), 256 + 512);
  EXPECT_EQ(live(kForward, MemoryClass::communication), 8);
  EXPECT_FALSE(live(kBackward, MemoryClass::gathered));
}

using Bytes = std::map<std::string, int64_t>;

TEST(PredictedTraffic, ddp_rounds_each_bucket_up_to_a_multiple_of_the_world_size) {
  ShardLayout layout;
  layout.world_size = 3;
  layout.units = {{"root", 263'184, true, true}};
  layout.parameters = {
      {"p0", 0, 0, 1000, true}, {"p1", 0, 1008, 1 << 18, true}, {"p2", 0, 263'152, 16, true}};
  EXPECT_EQ(traffic(config_of("ddp"), layout),
            (Bytes{{"all_reduce", 4 * 4 * (18 / 3 + 263'154 / 3)}, {"metrics", 32}}));
}

TEST(PredictedTraffic, an_evaluation_gathers_each_unit_once) {
  TrainConfig config = fsdp_config();
  config.steps = 0;
  config.clip = 1.0;
  EXPECT_EQ(traffic(config, four_units()), (Bytes{{"all_gather", 640}, {"metrics", 16}}));
}

}  // namespace
}  // namespace fsdp
