#include <train/fewer_ranks.h>

namespace fsdp {

std::optional<TrainConfig> with_ranks(TrainConfig config, int ranks) {
  config.ranks.world = ranks;
  if (ranks % config.sharding.shard_size != 0 || config.training.microbatches % ranks != 0)
    return std::nullopt;
  for (const ReduceGradients accumulate :
       {config.training.reduce_gradients, ReduceGradients::each, ReduceGradients::last}) {
    config.training.reduce_gradients = accumulate;
    // With mixed precision, a gradient is rounded when it is sent: once for each microbatch or, if
    // a rank adds the gradients of its microbatches first, only once, which gives other bits.
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
