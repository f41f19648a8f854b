#pragma once

#include <launch/rank_context.h>
#include <train/trainer.h>

#include <memory>

namespace fsdp {

// Returns the communicator for the strategy's collectives: `world` or, if `config` asks for fsdp
// with replicas, a communicator with replicas.
std::shared_ptr<Communicator> strategy_communicator(const RankContext& context,
                                                    const TrainConfig& config,
                                                    const std::shared_ptr<Communicator>& world);

// Makes the strategy of the run's mode. `comm`: the result of strategy_communicator().
std::unique_ptr<Strategy> make_strategy(const TrainConfig& config, const FsdpImplementation& fsdp,
                                        const Workload& workload, const ShardLayout& layout,
                                        const std::shared_ptr<Communicator>& comm);

}  // namespace fsdp
