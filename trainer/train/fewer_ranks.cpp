#include <train/fewer_ranks.h>

namespace fsdp {

std::optional<TrainConfig> with_ranks(TrainConfig config, int ranks) {
  config.ranks.world = ranks;
  if (ranks % config.sharding.shard_size != 0 || config.training.parts % ranks != 0)
    return std::nullopt;
  for (const Accumulate accumulate :
       {config.training.accumulate, Accumulate::each, Accumulate::last}) {
    config.training.accumulate = accumulate;
    // Parts that are added before they are sent are rounded once, in place of each.
    const bool rounds_once = accumulate == Accumulate::last && config.training.parts > ranks &&
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
