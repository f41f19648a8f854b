#include <comm/communicator.h>
#include <strategies/replica_strategy.h>
#include <train/make_strategy.h>

namespace fsdp {

std::shared_ptr<Communicator> strategy_communicator(const RankContext& context,
                                                    const TrainConfig& config,
                                                    const std::shared_ptr<Communicator>& world) {
  if (config.ranks.mode != Mode::fsdp || config.shards() == config.ranks.world) return world;
  return Communicator::create_hybrid(context, config.ranks.comm, config.shards());
}

std::unique_ptr<Strategy> make_strategy(const TrainConfig& config, const FsdpImplementation& fsdp,
                                        const Workload& workload, const ShardLayout& layout,
                                        const std::shared_ptr<Communicator>& comm) {
  if (config.ranks.mode == Mode::fsdp) return fsdp.make_strategy(config, workload, comm);
  if (config.ranks.mode == Mode::single) return make_replica_strategy(config, workload, layout);
  return make_replica_strategy(config, workload, layout, comm, fsdp.make_bucket_reduction);
}

}  // namespace fsdp
