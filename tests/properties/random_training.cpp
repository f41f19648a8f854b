#include <properties/random_training.h>
#include <properties/rng.h>
#include <train/checkpoints.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace fsdp {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Layer, kind, block, frozen, size, use, tied,
                                                checkpointed)

namespace {

const std::vector<at::ScalarType> kDtypes{at::kFloat, at::kBFloat16, at::kHalf};

bool can_be_tied_to(const Layer& layer) {
  return layer.kind == "linear" && layer.tied < 0;
}

Layer draw_layer(Rng& rng, const std::vector<Layer>& before) {
  Layer layer;
  layer.kind =
      rng.one_of<std::string>({"linear", "linear", "odd", "transposed", "nested", "paired"});
  layer.block = !rng.one_in(4);
  layer.frozen = rng.one_in(5);
  if (layer.kind == "odd") layer.size = 1 + rng.below(40);
  if (rng.one_in(4)) layer.use = rng.one_of<std::string>({"never", "twice", "odd"});
  for (size_t i = 0; i < before.size(); ++i)
    if (can_be_tied_to(layer) && can_be_tied_to(before[i]) && rng.one_in(8))
      layer.tied = static_cast<int>(i);
  return layer;
}

}  // namespace

RandomTraining draw(uint64_t seed) {
  Rng rng(seed);
  RandomTraining c;
  c.values = seed;
  for (int left = 1 + rng.below(5); left > 0; --left)
    c.layers.push_back(draw_layer(rng, c.layers));
  c.width = 1 + rng.below(12);
  TrainConfig& config = c.config;
  config.data.kind = DataKind::pattern;  // a kind of data that needs no file
  config.ranks.world = rng.one_of<int>({1, 2, 2, 3, 4, 4, 6, 8});
  const int shards = 1 + rng.below(config.ranks.world);
  if (config.ranks.world % shards == 0 && shards < config.ranks.world)
    config.sharding.shard_size = shards;
  int accumulation_steps = rng.one_of<int>({1, 1, 2, 3, 4, 5});
  config.training.reduce_gradients =
      rng.one_of<ReduceGradients>({ReduceGradients::each, ReduceGradients::last});
  config.training.steps = 1 + rng.below(3);
  config.sharding.wrap = rng.one_of<std::string>({"auto", "block", "none", "size:1", "size:200"});
  config.sharding.reshard_after_forward = !rng.one_in(4);
  config.sharding.limit = rng.one_of<int>({1, 2, 2, 3, 100});
  config.sharding.meta_init = !rng.one_in(3);
  using Kind = OptimizerOptions::Kind;
  config.optimizer.kind = rng.one_of<Kind>({Kind::adamw, Kind::adamw, Kind::sgd});
  config.optimizer.lr = 0.01;
  if (rng.one_in(3)) config.optimizer.no_decay = "bias";
  const auto clip = rng.one_of<double>({0, 0, 0.01, 100});
  config.ranks.comm.backend = rng.one_of<std::string>({"shm", "shm", "gloo"});
  const auto norm_type = rng.one_of<double>({1, 2, 3, std::numeric_limits<double>::infinity()});
  for (Layer& layer : c.layers)
    layer.checkpointed = rng.one_in(3);
  const MixedPrecisionPolicy precision{rng.one_of(kDtypes), rng.one_of(kDtypes)};
  c.loss_scale = rng.one_of<int>({1, 1, 2, 1024});
  if (config.training.steps > 1 && rng.one_in(2))
    c.saved = 1 + rng.below(static_cast<int>(config.training.steps) - 1);
  if (rng.one_in(2))
    config.precision.keep_fp32 =
        rng.one_of<std::string>({"", "bias|scale", "weight", "layers0|head", "."});
  c.offloads = rng.one_in(3);
  config.memory.offload_resident = rng.one_of<int64_t>({0, 1, 5000, 1 << 20});
  config.optimizer.step_in_backward = rng.one_in(3);
  if (rng.one_in(4)) config.optimizer.lr_factor = std::make_shared<double>(1);
  c.with_one_rank = rng.one_in(2);
  config.ranks.mode =
      rng.one_of<Mode>({Mode::fsdp, Mode::fsdp, Mode::fsdp, Mode::ddp, Mode::single});

  // With step_in_backward, a run needs one microbatch for each rank, and cannot clip.
  if (config.optimizer.step_in_backward) {
    accumulation_steps = 1;
  } else if (clip > 0) {
    config.optimizer.clip = clip;
    config.optimizer.norm_type = norm_type;
  }
  config.training.microbatches = accumulation_steps * config.ranks.world;
  // Gradients of several microbatches cannot be added in 16 bits.
  if (accumulation_steps == 1 || config.training.reduce_gradients == ReduceGradients::each)
    config.precision.policy = precision;
  if (config.ranks.mode == Mode::ddp) config.sharding.shard_size = 0;
  if (config.ranks.mode != Mode::fsdp) config.optimizer.step_in_backward = false;
  return c;
}

std::string text(const RandomTraining& c) {
  const TrainConfig& config = c.config;
  auto json = settings_of_run(config);
  json["layers"] = nlohmann::json(c.layers);
  json["width"] = c.width;
  json["mode"] = to_string(config.ranks.mode);
  json["ranks"] = {config.ranks.world, config.shards(), config.ranks.comm.backend};
  json["units"] = {config.sharding.wrap, config.sharding.reshard_after_forward,
                   config.sharding.limit, config.sharding.meta_init};
  json["steps"] = {config.training.steps, to_string(config.training.reduce_gradients),
                   config.optimizer.step_in_backward, c.loss_scale, c.saved};
  if (c.offloads) json["pinned"] = config.memory.offload_resident;
  return json.dump();
}

bool has_one_path(const RandomTraining& c) {
  return std::none_of(c.layers.begin(), c.layers.end(),
                      [](const Layer& layer) { return layer.use == "odd"; });
}

}  // namespace fsdp
