#include <config/train_config.h>
#include <prediction/prediction.h>
#include <prediction/step_time.h>

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace fsdp {
namespace {

constexpr auto kForward = static_cast<size_t>(Phase::forward);
constexpr auto kBackward = static_cast<size_t>(Phase::backward);
constexpr auto kOptimizer = static_cast<size_t>(Phase::optimizer);

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

using Change = std::function<void(TrainConfig&)>;

TrainConfig changed(const Change& change) {
  TrainConfig config = fsdp_config();
  change(config);
  return config;
}

struct Predicted {
  PredictedBytes bytes;
  std::optional<int64_t> operator()(size_t phase, MemoryClass cls) const {
    return bytes[phase][static_cast<size_t>(cls)];
  }
};

// Of as many ranks as the layout is made for.
Schedule schedule_of(TrainConfig config, const ShardLayout& layout, int rank = 0,
                     bool first = false) {
  config.world = layout.world_size;
  return schedule(config, layout, rank, first);
}

Predicted later_step(const TrainConfig& config, const ShardLayout& layout, int rank = 0,
                     const std::string& backend = "shm") {
  return {predict_live_bytes(schedule_of(config, layout, rank), backend)};
}

Predicted first_step(const TrainConfig& config, const ShardLayout& layout) {
  return {predict_live_bytes(schedule_of(config, layout, 0, /*first=*/true), "shm")};
}

std::map<std::string, int64_t> traffic(const TrainConfig& config, const ShardLayout& layout) {
  return predict_comm_bytes(schedule_of(config, layout));
}

TEST(PredictedLiveBytes, include_the_shards_of_the_rank_in_every_phase) {
  const auto live = later_step(fsdp_config(), four_units());
  for (const size_t phase : {kForward, kBackward, kOptimizer}) {
    EXPECT_EQ(live(phase, MemoryClass::shards), (256 + 384 + 512 + 128) / 2);
  }
}

TEST(PredictedLiveBytes, include_the_root_and_as_many_gathered_units_as_the_options_allow) {
  struct Row {
    const char* options;
    Change change;
    int64_t forward, backward;
  };
  constexpr int64_t kOne = 256 + 512, kTwo = kOne + 384, kAll = kTwo + 128;
  for (const auto& [options, change, forward, backward] : std::vector<Row>{
           {"limit 1", [](auto& config) { config.limit = 1; }, kOne, kOne},
           {"limit 2", [](auto&) {}, kTwo, kTwo},
           {"limit 3", [](auto& config) { config.limit = 3; }, kAll, kAll},
           {"a limit of each direction",
            [](auto& config) {
              config.forward_limit = kAllUnits;
              config.backward_limit = 1;
            },
            kAll, kOne},
           {"no prefetch", [](auto& config) { config.prefetch = false; }, kOne, kOne},
           {"kept", [](auto& config) { config.reshard_after_forward = false; }, kAll, kAll}}) {
    const auto live = later_step(changed(change), four_units());
    EXPECT_EQ(live(kForward, MemoryClass::gathered), forward) << options;
    EXPECT_EQ(live(kBackward, MemoryClass::gathered), backward) << options;
    EXPECT_EQ(live(kOptimizer, MemoryClass::gathered), 0) << options;
  }
}

TEST(PredictedStepTime, follows_the_limit_of_each_direction) {
  // The pictures of the handout of task 6: 34 or 26 ms in forward, 64 or 48 ms in backward.
  std::vector<UnitTime> units(4, {6, 12, 4, 4});
  units[0].forward = units[0].backward = 0;
  EXPECT_EQ(predict_step_time(units, 1, true, 1, 2), 34 + 48);
  EXPECT_EQ(predict_step_time(units, 2, true, 1, 1), 26 + 64);
}

TEST(PredictedLiveBytes, include_the_gradients_of_a_unit_and_its_flat_and_its_sharded_gradient) {
  const auto live = later_step(fsdp_config(), four_units());
  EXPECT_EQ(live(kForward, MemoryClass::gradients), 0);
  EXPECT_EQ(live(kBackward, MemoryClass::gradients), 4 * 120 + 512);  // b, as it is flattened
  EXPECT_EQ(live(kOptimizer, MemoryClass::gradients), 0);
  EXPECT_EQ(live(kForward, MemoryClass::sharded_gradients), 0);
  EXPECT_EQ(live(kBackward, MemoryClass::sharded_gradients), 640);
  EXPECT_EQ(live(kOptimizer, MemoryClass::sharded_gradients), 640);
}

TEST(PredictedLiveBytes, include_the_gradients_of_the_last_layers_of_the_root_from_the_start) {
  ShardLayout layout = four_units();
  layout.parameters[0].numel = 30;
  layout.parameters.push_back({"head", 0, 32, 20, true});
  const auto live = later_step(fsdp_config(), layout);
  EXPECT_EQ(live(kBackward, MemoryClass::gradients), 4 * 20 + 4 * 120 + 512);
}

TEST(PredictedLiveBytes, exclude_the_gradients_of_a_frozen_unit) {
  ShardLayout layout = four_units();
  layout.units[2].trainable = false;
  layout.parameters[3].trainable = false;
  const auto live = later_step(fsdp_config(), layout);
  EXPECT_EQ(live(kBackward, MemoryClass::gradients), 4 * (40 + 30) + 384);
  EXPECT_EQ(live(kBackward, MemoryClass::sharded_gradients), (256 + 384 + 128) / 2);
  EXPECT_EQ(live(kForward, MemoryClass::optimizer_state), 8 * (32 + 48 + 16) + 4 * 3);
}

TEST(PredictedLiveBytes, include_two_moments_and_a_step_for_each_piece_of_the_rank) {
  const auto state = [](int rank) {
    return later_step(fsdp_config(), four_units(), rank)(kForward, MemoryClass::optimizer_state);
  };
  EXPECT_EQ(state(0), 8 * (32 + 48 + 64 + 16) + 4 * 4);
  EXPECT_EQ(state(1), 8 * (32 + 32 + 64) + 4 * 3);
}

TEST(PredictedLiveBytes, neighbours_in_one_group_are_one_piece) {
  TrainConfig config = fsdp_config();
  const auto state = [&] {
    return later_step(config, four_units(1))(kForward, MemoryClass::optimizer_state);
  };
  EXPECT_EQ(state(), 8 * (64 + 80 + 128 + 16) + 4 * 4);
  config.no_decay = "y$";
  EXPECT_EQ(state(), 8 * (64 + 80 + 128 + 16) + 4 * 5);
  config.optimizer.kind = OptimizerOptions::Kind::sgd;
  EXPECT_EQ(state(), 0);
}

TEST(PredictedLiveBytes, a_first_step_has_no_prefetch_in_forward_and_no_state_before_its_end) {
  const Predicted live = first_step(fsdp_config(), four_units());
  EXPECT_EQ(live(kForward, MemoryClass::gathered), 256 + 512);
  EXPECT_EQ(live(kBackward, MemoryClass::gathered), 256 + 384 + 512);
  EXPECT_EQ(live(kBackward, MemoryClass::optimizer_state), 0);
  EXPECT_EQ(live(kOptimizer, MemoryClass::optimizer_state), 1296);
}

TEST(PredictedLiveBytes, include_the_buffers_of_the_transport) {
  TrainConfig config = fsdp_config();
  const auto shm = later_step(config, four_units());
  EXPECT_EQ(shm(kForward, MemoryClass::communication), 0);
  EXPECT_EQ(shm(kBackward, MemoryClass::communication), 8);
  EXPECT_EQ(shm(kOptimizer, MemoryClass::communication), 0);
  config.clip = 1.0;
  EXPECT_EQ(later_step(config, four_units())(kOptimizer, MemoryClass::communication), 160);
  const auto gloo = later_step(config, four_units(), 0, "gloo");
  EXPECT_EQ(gloo(kForward, MemoryClass::communication), 512);
  EXPECT_EQ(gloo(kBackward, MemoryClass::communication), 512 + 384);  // b reduced, a gathered
  EXPECT_EQ(gloo(kOptimizer, MemoryClass::communication), (20 + 20 + 10) * 8);
  config.norm_type = std::numeric_limits<double>::infinity();  // a number of each rank
  const auto communication = [&](const std::string& backend) {
    return later_step(config, four_units(), 0, backend)(kOptimizer, MemoryClass::communication);
  };
  EXPECT_EQ(communication("shm"), 8);
  EXPECT_EQ(communication("gloo"), 2 * 8);
}

TEST(PredictedLiveBytes, replicas_hold_padded_parameters_buckets_and_state) {
  constexpr int64_t kPadded = 64 + 48 + 32 + 128 + 16;
  for (const char* mode : {"single", "ddp"}) {
    const auto live = later_step(config_of(mode), four_units());
    const bool next_rank_in_forward = std::string(mode) == "single";
    EXPECT_EQ(live(kForward, MemoryClass::shards), 0);
    EXPECT_EQ(live(kForward, MemoryClass::gathered), 4 * kPadded);
    EXPECT_EQ(live(kForward, MemoryClass::gradients), next_rank_in_forward ? 4 * kPadded : 0);
    EXPECT_EQ(live(kBackward, MemoryClass::gradients), 4 * kPadded);
    EXPECT_EQ(live(kOptimizer, MemoryClass::gradients), 4 * kPadded);
    EXPECT_EQ(live(kOptimizer, MemoryClass::optimizer_state), 8 * kPadded + 4 * 5);
  }
  const auto alone = later_step(config_of("single"), four_units(1));
  EXPECT_EQ(alone(kForward, MemoryClass::gradients), 0);
}

TEST(PredictedLiveBytes, ddp_over_gloo_holds_three_buffers_for_a_bucket) {
  const auto live = later_step(config_of("ddp"), four_units(), 0, "gloo");
  EXPECT_EQ(live(kBackward, MemoryClass::communication), 4 * (288 + 288 + 144));
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

TEST(PredictedTraffic, fsdp_gathers_a_unit_twice_if_it_is_freed_after_forward) {
  TrainConfig config = fsdp_config();
  EXPECT_EQ(
      traffic(config, four_units()),
      (Bytes{{"all_gather", 4 * (2 * 320 - 64) / 2}, {"reduce_scatter", 640}, {"metrics", 16}}));
  config.reshard_after_forward = false;
  config.clip = 1.0;
  EXPECT_EQ(traffic(config, four_units()),
            (Bytes{{"all_gather", 640}, {"reduce_scatter", 640}, {"metrics", 16}, {"norm", 160}}));
  config.norm_type = 3;
  EXPECT_EQ(traffic(config, four_units()).at("norm"), 8 + 160);
  config.norm_type = std::numeric_limits<double>::infinity();
  EXPECT_EQ(traffic(config, four_units()).at("norm"), 8);
}

TEST(PredictedTraffic, excludes_the_reduction_of_a_frozen_unit) {
  ShardLayout layout = four_units();
  layout.units[1].trainable = false;
  EXPECT_EQ(traffic(fsdp_config(), layout).at("reduce_scatter"), 640 - 192);
}

TEST(PredictedTraffic, ddp_rounds_each_bucket_up_to_a_multiple_of_the_world_size) {
  ShardLayout layout;
  layout.world_size = 3;
  layout.units = {{"root", 263'184, true, true}};
  layout.parameters = {
      {"p0", 0, 0, 1000, true}, {"p1", 0, 1008, 1 << 18, true}, {"p2", 0, 263'152, 16, true}};
  EXPECT_EQ(traffic(config_of("ddp"), layout),
            (Bytes{{"all_reduce", 4 * 4 * (18 / 3 + 263'154 / 3)}, {"metrics", 32}}));
}

TEST(PredictedTraffic, is_zero_for_one_process) {
  EXPECT_EQ(traffic(config_of("single"), four_units()), (Bytes{{"metrics", 0}}));
  for (const auto& [key, bytes] : traffic(fsdp_config(), four_units(1))) {
    EXPECT_EQ(bytes, 0) << key;
  }
}

TEST(PredictedTraffic, an_evaluation_gathers_each_unit_once) {
  TrainConfig config = fsdp_config();
  config.steps = 0;
  config.clip = 1.0;
  EXPECT_EQ(traffic(config, four_units()), (Bytes{{"all_gather", 640}, {"metrics", 16}}));
}

}  // namespace
}  // namespace fsdp
