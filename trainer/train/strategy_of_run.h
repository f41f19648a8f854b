#pragma once

#include <comm/communicator.h>
#include <comm/launcher.h>
#include <config/train_config.h>
#include <strategies/strategy.h>
#include <train/trainer.h>

#include <memory>

namespace fsdp {

// What the strategy sums and gathers by: `world`, unless the model has replicas.
std::shared_ptr<Communicator> strategy_communicator(const RankContext& context,
                                                    const TrainConfig& config,
                                                    const std::shared_ptr<Communicator>& world);

std::unique_ptr<Strategy> make_strategy(const TrainConfig& config, const FsdpImplementation& fsdp,
                                        const Workload& workload, const ShardLayout& layout,
                                        const std::shared_ptr<Communicator>& comm);

// Throws std::invalid_argument if --keep-fp32 names no parameter.
void check_keep_fp32(const TrainConfig& config, const ShardLayout& layout);

}  // namespace fsdp
