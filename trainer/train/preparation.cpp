#include <base/text.h>
#include <base/whole_file.h>
#include <c10/util/ScopeExit.h>
#include <report/telemetry.h>
#include <strategies/workload.h>
#include <sys/sysinfo.h>
#include <train/checkpoints.h>
#include <train/held_out.h>
#include <train/over_ranks.h>
#include <train/preparation.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// Throws if `value` of some rank is another than that of rank 0.
void require_equal(int64_t value, const RankContext& context, Communicator& comm,
                   const std::string& complaint) {
  const auto values = gather_from_ranks(comm, value);
  for (size_t rank = 1; rank < values.size(); ++rank)
    if (values[rank] != values[0])
      throw std::runtime_error("rank " + std::to_string(rank) + " on " +
                               context.hosts->name_of(static_cast<int>(rank)) + ' ' + complaint);
}

}  // namespace

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

void require_one_run(const TrainConfig& config, const RankContext& context, Communicator& comm) {
  if (!context.hosts) return;
  if (config.on_lost_host == "continue" && config.shards() < config.world &&
      !context.on_one_host(Group::shards(context.rank, config.world, config.shards())))
    throw std::runtime_error("rank " + std::to_string(context.rank) +
                             ": --on-lost-host continue needs each replica on one host (" +
                             context.hosts->text() + "); give another --shard-size");
  const std::string settings = settings_of_run(config).dump() + std::to_string(config.first_step);
  require_equal(static_cast<int64_t>(std::hash<std::string>{}(settings)), context, comm,
                "was started with other options, another text or another checkpoint than rank 0: "
                "all ranks need the same");
  if (config.checkpoint_dir.empty() || !context.hosts->several()) return;
  const auto seen = std::filesystem::path(config.checkpoint_dir) /
                    (".seen-by-all-hosts-" + std::to_string(gather_from_ranks(comm, getpid())[0]));
  const auto remove = c10::make_scope_exit([&] {
    std::error_code unknown;
    if (context.rank == 0) std::filesystem::remove(seen, unknown);
  });
  if (context.rank == 0) {
    std::filesystem::create_directories(config.checkpoint_dir);
    write_whole_file(seen, "");
  }
  comm.barrier(kState).wait();
  require_equal(std::filesystem::exists(seen), context, comm,
                "does not see --checkpoint-dir " + config.checkpoint_dir +
                    " of rank 0: it must lie on a file system that all hosts share");
}

}  // namespace fsdp
