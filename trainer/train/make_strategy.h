#pragma once

#include <launch/rank_context.h>
#include <train/trainer.h>

#include <memory>

namespace fsdp {

// Returns the communicator of the strategy's collectives: `world`, or in fsdp a communicator with
// replicas if `config` asks for replicas.
std::shared_ptr<Communicator> strategy_communicator(const RankContext& context,
                                                    const TrainConfig& config,
                                                    const std::shared_ptr<Communicator>& world);

// Makes the strategy of the run's mode. `comm`: what strategy_communicator() returns.
std::unique_ptr<Strategy> make_strategy(const TrainConfig& config, const FsdpImplementation& fsdp,
                                        const Workload& workload, const ShardLayout& layout,
                                        const std::shared_ptr<Communicator>& comm);

}  // namespace fsdp
