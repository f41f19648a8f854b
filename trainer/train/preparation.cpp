#include <agreement/same_on_all_ranks.h>
#include <base/text.h>
#include <base/whole_file.h>
#include <c10/util/ScopeExit.h>
#include <prediction/model_trace.h>
#include <report/telemetry.h>
#include <strategies/root_readers.h>
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
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// Collective. Throws if ranks differ in a trait: "rank 3 on host-b ", and what `complaint` says of
// the first rank that has another value than rank 0.
using Complaint = std::function<std::string(const std::string& what, const std::string& of_rank_0,
                                            const std::string& of_rank)>;
void require_same(const std::vector<Trait>& traits, const RankContext& context, Communicator& comm,
                  const Complaint& complaint) {
  const auto difference = difference_between_ranks(comm, traits, "give every rank the same");
  if (!difference) return;
  const auto& values = difference->of_ranks;
  const auto other = std::ranges::find_if(values, [&](const auto& v) { return v != values[0]; });
  const auto rank = static_cast<int>(other - values.begin());
  throw std::runtime_error("rank " + std::to_string(rank) + " on " + context.hosts->name_of(rank) +
                           ' ' + complaint(difference->what, values[0], *other));
}

// The settings of the run, by the names of their options, and the steps of its checkpoint.
std::vector<Trait> traits_of_run(const TrainConfig& config) {
  const std::map<std::string, std::string> others{
      {"recipe", "--data"},
      {"scales_loss", "--loss-scale"},
      {"text_sha256", "the SHA-256 of the text"},
      {"text_held_out", "the held-out part of the text"},
      {"tokens", "the sizes of the files of --tokens"}};
  std::vector<Trait> traits;
  for (const auto& [name, value] : settings_of_run(config).items()) {
    const auto other = others.find(name);
    std::string option = "--" + name;
    std::ranges::replace(option, '_', '-');
    traits.push_back({other != others.end() ? other->second : option, value.dump(), {}});
  }
  traits.push_back(
      {"the number of steps of the checkpoint", std::to_string(config.first_step), {}});
  return traits;
}

// What helps a run that needs too much memory of this machine, best first.
std::vector<std::string> ways_to_need_less(const TrainConfig& config, int processes) {
  std::vector<std::string> ways;
  const bool replicas = config.mode == "fsdp" && config.shards() < config.world;
  if (config.mode == "ddp" && processes > 1) ways.emplace_back("--mode fsdp, which shards it");
  if (replicas || (config.mode == "fsdp" && !config.reshard_after_forward))
    ways.emplace_back("--strategy full");
  if (config.mode == "ddp" && processes > 1) ways.emplace_back("fewer ranks");
  const bool adamw = config.optimizer.kind == OptimizerOptions::Kind::adamw;
  if (adamw && config.offload_dir.empty())
    ways.emplace_back("--offload optimizer --offload-dir DIR");
  if (config.checkpoint_every == 0) ways.emplace_back("--checkpoint-activations all");
  if (config.batch > config.arrangement().parts()) ways.emplace_back("a smaller --batch");
  ways.emplace_back(config.mode == "fsdp" ? "ranks on more machines, started by torchrun"
                                          : "a smaller --model");
  return ways;
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
  if (fsdp.construct_on_meta == nullptr) return run;
  if (!config.on_cuda()) {
    try {
      run.traces = rehearse(config, workload, run.layout, fsdp.construct_on_meta);
      return run;
    } catch (const c10::NotImplementedError&) {  // the bytes of its activations are not predicted
    }
  }
  std::shared_ptr<Module> model;
  fsdp.construct_on_meta([&] { model = workload.build(); });
  run.traces =
      chain_of(config, run.layout, /*times=*/{}, units_before_root_readers(*model, run.layout));
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
  std::string ways;
  for (const std::string& way : ways_to_need_less(config, processes))
    ways += (ways.empty() ? "" : ", or ") + way;
  throw std::runtime_error("--mode " + config.mode + " of " + config.model + " needs " +
                           with_commas(needed) + " bytes on " + counted(processes, "rank") +
                           (traces && traces->has_activations ? "" : ", without activations,") +
                           " and this machine has " + with_commas(memory) + "; take " + ways);
}

int64_t room_for_checkpoints(const TrainConfig& config) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  fs::path folder = fs::absolute(config.checkpoint_dir, unknown);
  while (!fs::exists(folder, unknown) && folder.has_relative_path())
    folder = folder.parent_path();
  const fs::space_info space = fs::space(folder, unknown);
  const bool known = !unknown && space.capacity > 0;
  return known && space.available <= static_cast<uintmax_t>(std::numeric_limits<int64_t>::max())
             ? static_cast<int64_t>(space.available)
             : std::numeric_limits<int64_t>::max();
}

void require_room_for_checkpoints(const TrainConfig& config, const ShardLayout& layout,
                                  int64_t room) {
  const bool moments = config.optimizer.kind == OptimizerOptions::Kind::adamw;
  const int64_t each = layout.numel() * (moments ? 3 : 1) * int64_t{sizeof(float)};
  int64_t count =
      (config.steps - 1) / config.save_every - config.first_step / config.save_every + 1;
  // While a checkpoint is written, those to keep are there too.
  if (config.keep) count = std::min(count, *config.keep + 1);
  if (config.steps == config.first_step || each <= 0 || count <= room / each) return;
  throw std::runtime_error(
      "--checkpoint-dir " + config.checkpoint_dir + ": has " + with_commas(room) +
      " bytes free, too few for " + counted(count, "checkpoint") + " of " + with_commas(each) +
      " bytes; give " + (room < each ? "" : "--keep, a larger --save-every or ") +
      "another folder");
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
  require_same(traits_of_run(config), context, comm,
               [](const auto& what, const auto& of_rank_0, const auto& of_rank) {
                 return "was started with other options, another text or another checkpoint than "
                        "rank 0: " +
                        what + ": " + of_rank_0 + " on rank 0, " + of_rank +
                        " here; all ranks need the same";
               });
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
  require_same({{"whether the rank sees it", std::filesystem::exists(seen) ? "yes" : "no", {}}},
               context, comm, [&](const auto&, const auto&, const auto&) {
                 return "does not see --checkpoint-dir " + config.checkpoint_dir +
                        " of rank 0: it must lie on a file system that all hosts share";
               });
}

}  // namespace fsdp
