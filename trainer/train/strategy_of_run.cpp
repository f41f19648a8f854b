#include <train/strategy_of_run.h>

#include <algorithm>
#include <stdexcept>

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
  if (config.mode == "ddp") return make_ddp_strategy(config, workload, layout, comm);
  return make_single_strategy(config, workload, layout);
}

void check_keep_fp32(const TrainConfig& config, const ShardLayout& layout) {
  const auto kept = [&](const auto& parameter) { return config.keeps_fp32(parameter.name); };
  const auto& parameters = layout.parameters;
  if (config.keep_fp32.empty() || std::any_of(parameters.begin(), parameters.end(), kept)) return;
  throw std::invalid_argument("--keep-fp32 " + config.keep_fp32 + ": no parameter of " +
                              config.model + " has such a name; the last one is " +
                              parameters.back().name);
}

}  // namespace fsdp
