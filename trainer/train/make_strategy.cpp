#include <strategies/replica_strategy.h>
#include <train/make_strategy.h>

namespace fsdp {

std::shared_ptr<Communicator> strategy_communicator(const RankContext& context,
                                                    const TrainConfig& config,
                                                    const std::shared_ptr<Communicator>& world) {
  if (config.mode != "fsdp" || config.shards() == config.world) return world;
  return Communicator::create_hybrid(context, config.comm, config.shards());
}

std::unique_ptr<Strategy> make_strategy(const TrainConfig& config, const FsdpImplementation& fsdp,
                                        const Workload& workload, const ShardLayout& layout,
                                        const std::shared_ptr<Communicator>& comm) {
  if (config.mode == "fsdp") return fsdp.make_strategy(config, workload, comm);
  return make_replica_strategy(config, workload, layout, config.mode == "ddp" ? comm : nullptr);
}

}  // namespace fsdp
