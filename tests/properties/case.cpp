#include <properties/case.h>
#include <properties/dice.h>

#include <algorithm>

namespace fsdp {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Layer, kind, block, frozen, size, use, tied,
                                                checkpointed)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Case, values, layers, width, world, mode, shards,
                                                turns, accumulate, steps, wrap,
                                                reshard_after_forward, limit, meta_init, optimizer,
                                                decay_of_all, clip, norm_type, backend, param_dtype,
                                                reduce_dtype, keep_fp32, loss_scale, saved, pinned,
                                                step_in_backward, rate_falls, with_one_rank)

namespace {

const std::vector<std::string> kNormTypes{"1", "2", "3", "inf"};
const std::vector<std::string> kDtypes{"fp32", "bf16", "fp16"};
const std::vector<std::string> kKept{"", "bias|scale", "weight", "layers0|head", "."};

bool can_be_tied_to(const Layer& layer) {
  return layer.kind == "linear" && layer.tied < 0;
}

Layer draw_layer(Dice& dice, const std::vector<Layer>& before) {
  Layer layer;
  layer.kind =
      dice.one_of<std::string>({"linear", "linear", "odd", "transposed", "nested", "paired"});
  layer.block = !dice.one_in(4);
  layer.frozen = dice.one_in(5);
  if (layer.kind == "odd") layer.size = 1 + dice.below(40);
  if (dice.one_in(4)) layer.use = dice.one_of<std::string>({"never", "twice", "odd"});
  for (size_t i = 0; i < before.size(); ++i)
    if (can_be_tied_to(layer) && can_be_tied_to(before[i]) && dice.one_in(8))
      layer.tied = static_cast<int>(i);
  return layer;
}

}  // namespace

Case draw(uint64_t seed) {
  Dice dice(seed);
  Case c;
  c.values = seed;
  c.layers.clear();
  for (int left = 1 + dice.below(5); left > 0; --left)
    c.layers.push_back(draw_layer(dice, c.layers));
  c.width = 1 + dice.below(12);
  c.world = dice.one_of<int>({1, 2, 2, 3, 4, 4, 6, 8});
  const int shards = 1 + dice.below(c.world);
  if (c.world % shards == 0 && shards < c.world) c.shards = shards;
  c.turns = dice.one_of<int>({1, 1, 2, 3, 4, 5});
  c.accumulate = dice.one_of<std::string>({"each", "last"});
  c.steps = 1 + dice.below(3);
  c.wrap = dice.one_of<std::string>({"auto", "block", "none", "size:1", "size:200"});
  c.reshard_after_forward = !dice.one_in(4);
  c.limit = dice.one_of<int>({1, 2, 2, 3, 100});
  c.meta_init = !dice.one_in(3);
  c.optimizer = dice.one_of<std::string>({"adamw", "adamw", "sgd"});
  c.decay_of_all = !dice.one_in(3);
  c.clip = dice.one_of<double>({0, 0, 0.01, 100});
  c.backend = dice.one_of<std::string>({"shm", "shm", "gloo"});
  if (c.clip > 0) c.norm_type = dice.one_of(kNormTypes);
  for (Layer& layer : c.layers)
    layer.checkpointed = dice.one_in(3);
  const auto param_dtype = dice.one_of(kDtypes), reduce_dtype = dice.one_of(kDtypes);
  if (c.turns == 1 || c.accumulate == "each") {  // else only fp32 is taken
    c.param_dtype = param_dtype;
    c.reduce_dtype = reduce_dtype;
  }
  c.loss_scale = dice.one_of<int>({1, 1, 2, 1024});
  if (c.steps > 1 && dice.one_in(2)) c.saved = 1 + dice.below(c.steps - 1);
  if (dice.one_in(2)) c.keep_fp32 = dice.one_of(kKept);
  if (dice.one_in(3)) c.pinned = dice.one_of<int>({0, 1, 5000, 1 << 20});
  c.step_in_backward = dice.one_in(3);
  if (c.step_in_backward) {  // which takes one part of each rank, and does not clip
    c.turns = 1;
    c.clip = Case().clip;
    c.norm_type = Case().norm_type;
  }
  c.rate_falls = dice.one_in(4);
  c.with_one_rank = dice.one_in(2);
  c.mode = dice.one_of<std::string>({"fsdp", "fsdp", "fsdp", "ddp", "single"});
  if (c.mode == "ddp") c.shards = Case().shards;
  if (c.mode != "fsdp") c.step_in_backward = false;
  return c;
}

std::string text(const Case& c) {
  return nlohmann::json(c).dump();
}

bool has_one_path(const Case& c) {
  return std::none_of(c.layers.begin(), c.layers.end(),
                      [](const Layer& layer) { return layer.use == "odd"; });
}

}  // namespace fsdp
