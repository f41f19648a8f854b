#include <base/text.h>
#include <report/telemetry.h>
#include <strategies/workload.h>
#include <sys/sysinfo.h>
#include <train/held_out.h>
#include <train/preparation.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace fsdp {

Workload workload_of_run(const TrainConfig& config, const FsdpImplementation& fsdp,
                         std::shared_ptr<const Dataset> dataset) {
  Workload workload = language_modeling(config, std::move(dataset));
  if (config.checkpoint_every == 0) return workload;
  workload.build = [build = workload.build, checkpoint_blocks = fsdp.checkpoint_blocks,
                    every = config.checkpoint_every] {
    auto model = build();
    checkpoint_blocks(*model, every);
    return model;
  };
  return workload;
}

Rehearsed rehearsed(const TrainConfig& config, const FsdpImplementation& fsdp) {
  const live_bytes::Rehearsal peaks;
  const std::shared_ptr<const Dataset> dataset = make_dataset(config);
  std::optional<HeldOut> held_out;  // as a run has it
  if (config.eval_every > 0) held_out.emplace(config, *dataset);
  const Workload workload = workload_of_run(config, fsdp, dataset);
  Rehearsed run{fsdp.shard_layout(config, workload), std::nullopt};
  if (config.on_cuda() || fsdp.construct_on_meta == nullptr) return run;
  try {
    run.traces = rehearse(config, workload, run.layout, fsdp.construct_on_meta);
  } catch (const c10::NotImplementedError&) {  // its bytes are not predicted
  }
  return run;
}

int64_t memory_of_machine() {
  struct sysinfo machine {};
  sysinfo(&machine);
  return static_cast<int64_t>((machine.totalram + machine.totalswap) * machine.mem_unit);
}

void require_enough_memory(const TrainConfig& config, const ShardLayout& layout,
                           const std::optional<ModelTraces>& traces, const Transports& transports,
                           int processes, int64_t memory) {
  const Schedule step = schedule(config, layout, /*rank=*/0, /*first=*/false, traces);
  const int64_t needed = processes * predict_memory(step, transports).peak.bytes.total;
  if (needed <= memory) return;
  throw std::runtime_error("--mode " + config.mode + " of " + config.model + " needs " +
                           with_commas(needed) + " bytes on " + counted(processes, "rank") +
                           (traces ? "" : ", without activations,") + " and this machine has " +
                           with_commas(memory) +
                           "; shard it (--mode fsdp), take fewer ranks, or --offload optimizer");
}

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

void check_keep_fp32(const TrainConfig& config, const ShardLayout& layout) {
  const auto kept = [&](const auto& parameter) { return config.keeps_fp32(parameter.name); };
  const auto& parameters = layout.parameters;
  if (config.keep_fp32.empty() || std::ranges::any_of(parameters, kept)) return;
  throw std::invalid_argument("--keep-fp32 " + config.keep_fp32 + ": no parameter of " +
                              config.model + " has such a name; the last one is " +
                              parameters.back().name);
}

}  // namespace fsdp
