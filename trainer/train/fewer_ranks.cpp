#include <train/fewer_ranks.h>

namespace fsdp {

std::optional<TrainConfig> with_ranks(TrainConfig config, int ranks) {
  config.ranks.world = ranks;
  if (ranks % config.sharding.shard_size != 0 || config.training.microbatches % ranks != 0)
    return std::nullopt;
  for (const ReduceGradients accumulate :
       {config.training.reduce_gradients, ReduceGradients::each, ReduceGradients::last}) {
    config.training.reduce_gradients = accumulate;
    // With mixed precision, a gradient is rounded when a rank sends it. By default a rank sends the
    // gradient of each microbatch. With --reduce-gradients last it sends only the sum over its
    // microbatches, so there are fewer roundings, which gives other bits.
    const bool rounds_once = accumulate == ReduceGradients::last &&
                             config.training.microbatches > ranks &&
                             config.precision.policy != MixedPrecisionPolicy{};
    if (!rounds_once && config.batch_partition().is_one_tree()) return config;
  }
  return std::nullopt;
}

int ranks_that_go_on(const TrainConfig& config, int ranks) {
  while (ranks > 0 && !with_ranks(config, ranks))
    --ranks;
  return ranks;
}

}  // namespace fsdp
