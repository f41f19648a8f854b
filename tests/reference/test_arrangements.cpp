#include <report/parameter_summary.h>
#include <testing/multi_rank.h>
#include <trainer/strategy_of.h>

#include <string>

// One batch in one number of parts gives the same bits on every number of ranks.
namespace fsdp {
namespace {

// A model that no registry knows.
struct LayerBlock : Module {
  LayerBlock() { linear = register_module("linear", torch::nn::Linear(9, 9)); }
  at::Tensor forward(at::Tensor x) override { return x + linear(x).tanh(); }
  torch::nn::Linear linear{nullptr};
};

struct Net : Module {
  Net() {
    for (int i = 0; i < 3; ++i)
      blocks.push_back(register_module(std::to_string(i), std::make_shared<LayerBlock>()));
    head = register_parameter("head", at::randn({9}));
  }
  at::Tensor forward(at::Tensor x) override {
    for (const auto& block : blocks)
      x = (*block)(x);
    return x * head;
  }
  std::vector<std::shared_ptr<LayerBlock>> blocks;
  at::Tensor head;
};

std::shared_ptr<Module> build() {
  torch::manual_seed(3);
  return std::make_shared<Net>();
}

// Sums of the parts' gradients differ in their last bits with the order.
at::Tensor loss(Module& model, int part, int parts, int64_t step) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
  const at::Tensor rows = at::randn({24, 9}, generator).chunk(parts)[part];
  return model(rows).square().mean();
}

TrainConfig config_of(const std::string& mode, int world_size, int parts) {
  TrainConfig config;
  config.mode = mode;
  config.world = world_size;
  config.parts = parts;
  config.optimizer.lr = 0.01;
  return config;
}

// Of the parameters after three steps of the strategy that `config` names.
nlohmann::json hash_of(const TrainConfig& config, const std::string& backend = "shm") {
  const RankRun run = run_ranks(
      config.mode == "single" ? 1 : config.world,
      [&](TestRank& rank) {
        const auto strategy = strategy_of(rank, config, {build, loss});
        for (int64_t step = 0; step < 3; ++step) {
          if (config.optimizer.lr_factor)
            *config.optimizer.lr_factor = 1.0 / static_cast<double>(1 + step);
          strategy->forward_backward(step);
          if (config.clip) strategy->clip_grad_norm(*config.clip, config.norm_type);
          strategy->step();
        }
        ParameterSummary summary;
        strategy->full_parameters([&](const auto&, const at::Tensor& p) { summary.add(p); });
        if (rank.rank() == 0) rank.observe("hash", summary.sha256());
      },
      {.backend = backend});
  return run.at(0, "hash");
}

// Of one process that computes all parts, and knows nothing of ranks.
nlohmann::json hash_of_one_rank(int parts, std::optional<double> clip = {}) {
  TrainConfig config = config_of("single", 1, parts);
  config.clip = clip;
  return hash_of(config);
}

MULTI_RANK_SUITE_ON(Arrangements, 1, 2, 4, 8);

MULTI_RANK_TEST(Arrangements, of_eight_parts_give_the_same_bits_on_every_number_of_ranks) {
  const auto expected = hash_of_one_rank(8);
  EXPECT_NE(expected, hash_of_one_rank(4));
  for (const char* mode : {"single", "ddp", "fsdp"}) {
    TrainConfig config = config_of(mode, world_size(), 8);
    EXPECT_EQ(hash_of(config), expected) << mode;
    if (config.mode != "single") {
      EXPECT_EQ(hash_of(config, "gloo"), expected) << mode << " over gloo";
    }
    config.accumulate = "last";
    EXPECT_EQ(hash_of(config), expected) << mode << ", reduced after the last part";
  }
  TrainConfig one_unit = config_of("fsdp", world_size(), 8);
  one_unit.prefetch = false;
  EXPECT_EQ(hash_of(one_unit), expected) << "without prefetch";
  one_unit.wrap = "none";
  EXPECT_EQ(hash_of(one_unit), expected) << "one unit";
}

MULTI_RANK_TEST(Arrangements, give_the_same_bits_where_gradients_are_clipped) {
  constexpr double kClip = 0.1;
  const auto expected = hash_of_one_rank(8, kClip);
  EXPECT_NE(expected, hash_of_one_rank(8)) << "nothing was clipped";
  for (const char* mode : {"single", "ddp", "fsdp"}) {
    for (const char* wrap : {"block", "none"}) {
      TrainConfig config = config_of(mode, world_size(), 8);
      config.clip = kClip;
      config.wrap = wrap;
      EXPECT_EQ(hash_of(config), expected) << mode << ", wrap " << wrap;
    }
  }
}

MULTI_RANK_TEST(Arrangements, give_the_same_bits_where_the_learning_rate_falls) {
  const auto falls = [&](TrainConfig config) {
    config.optimizer.lr_factor = std::make_shared<double>(1);
    return hash_of(config);
  };
  const auto expected = falls(config_of("single", 1, 8));
  EXPECT_NE(expected, hash_of_one_rank(8));
  for (const char* mode : {"single", "ddp", "fsdp"})
    EXPECT_EQ(falls(config_of(mode, world_size(), 8)), expected) << mode;
  if (world_size() != 8) return;
  TrainConfig in_backward = config_of("fsdp", 8, 8);
  in_backward.step_in_backward = true;
  EXPECT_EQ(falls(in_backward), expected) << "units step in backward";
}

// The strategies: replicas of every size that divides the ranks, whose units are kept after forward
// or not.
std::vector<TrainConfig> strategies_of(int world_size, int parts) {
  std::vector<TrainConfig> strategies;
  for (int shards = 1; shards <= world_size; ++shards) {
    if (world_size % shards != 0) continue;
    for (const bool reshard : {true, false}) {
      TrainConfig config = config_of("fsdp", world_size, parts);
      config.shard_size = shards;
      config.reshard_after_forward = reshard;
      strategies.push_back(config);
    }
  }
  return strategies;
}

std::string name_of(const TrainConfig& config) {
  return std::to_string(config.world / config.shards()) + " replicas of " +
         std::to_string(config.shards()) + (config.reshard_after_forward ? "" : ", units kept");
}

MULTI_RANK_TEST(Arrangements, give_the_same_bits_with_every_strategy) {
  const auto expected = hash_of_one_rank(8);
  for (const TrainConfig& config : strategies_of(world_size(), 8))
    EXPECT_EQ(hash_of(config), expected) << name_of(config);
}

MULTI_RANK_SUITE_ON(ArrangementsOfThree, 3, 6);

MULTI_RANK_TEST(ArrangementsOfThree, equal_the_single_process_that_plays_the_same) {
  for (const int parts : {6, 12}) {
    for (const char* accumulate : {"each", "last"}) {
      const auto hash = [&](const char* mode) {
        TrainConfig config = config_of(mode, world_size(), parts);
        config.accumulate = accumulate;
        return hash_of(config);
      };
      const auto expected = hash("single");
      for (const char* mode : {"ddp", "fsdp"})
        EXPECT_EQ(hash(mode), expected) << mode << ", " << parts << " parts, " << accumulate;
    }
  }
}

}  // namespace
}  // namespace fsdp
