#include <base/text.h>
#include <report/telemetry.h>
#include <sys/sysinfo.h>
#include <train/checkpoint_room.h>
#include <train/memory_check.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp {
namespace {

// Returns texts: the changes of the options with which the run needs less memory of this machine,
// the best change first.
std::vector<std::string> ways_to_need_less(const TrainConfig& config, int processes) {
  std::vector<std::string> ways;
  if (config.checkpoint.async) ways.emplace_back("no --save-async");
  const bool replicas = config.ranks.mode == Mode::fsdp && config.shards() < config.ranks.world;
  if (config.ranks.mode == Mode::ddp && processes > 1)
    ways.emplace_back("--mode fsdp, which shards it");
  if (replicas || (config.ranks.mode == Mode::fsdp && !config.sharding.reshard_after_forward))
    ways.emplace_back("--strategy full");
  if (config.ranks.mode == Mode::ddp && processes > 1) ways.emplace_back("fewer ranks");
  const bool adamw = config.optimizer.kind == OptimizerOptions::Kind::adamw;
  if (adamw && config.memory.offload_dir.empty())
    ways.emplace_back("--offload optimizer --offload-dir DIR");
  if (config.memory.activation_checkpoint_every == 0)
    ways.emplace_back("--checkpoint-activations all");
  if (config.training.batch > config.batch_partition().microbatches())
    ways.emplace_back("a smaller --batch");
  ways.emplace_back(config.ranks.mode == Mode::fsdp ? "ranks on more machines, started by torchrun"
                                                    : "a smaller --model");
  return ways;
}

// Returns the bytes of the copies of tensors that `processes` ranks hold while they write a
// checkpoint with --save-async.
int64_t bytes_of_copies(const TrainConfig& config, const ShardLayout& layout, int processes) {
  if (!config.checkpoint.async) return 0;
  const int64_t whole = checkpoint_bytes(config, layout);
  const bool sharded =
      config.ranks.mode == Mode::fsdp && config.checkpoint.format == CheckpointFormat::sharded;
  return sharded ? whole * std::min(processes, config.shards()) / config.shards() : whole;
}

// Returns a configuration whose step needs the memory that a step of the run `config` needs. A run
// with --only-microbatch computes one microbatch, so it holds no sums of other microbatches. It
// updates nothing, so it holds no moments.
TrainConfig config_of_step(TrainConfig config) {
  if (!config.training.only_microbatch) return config;
  config.training.batch /= config.batch_partition().microbatches();
  config.training.microbatches = config.ranks.world = 1;
  config.optimizer.kind = OptimizerOptions::Kind::sgd;
  return config;
}

}  // namespace

int64_t memory_of_machine() {
  struct sysinfo machine {};
  sysinfo(&machine);
  return static_cast<int64_t>((machine.totalram + machine.totalswap) * machine.mem_unit);
}

void require_enough_memory(const TrainConfig& config, const ShardLayout& layout,
                           const std::optional<ModelTraces>& traces, const Transports& transports,
                           int processes, int64_t memory) {
  const Schedule step =
      schedule(config_of_step(config), layout, /*rank=*/0, /*first=*/false, traces);
  const int64_t needed = processes * predict_memory(step, transports).peak.bytes.total +
                         bytes_of_copies(config, layout, processes);
  if (needed <= memory) return;
  std::string ways;
  for (const std::string& way : ways_to_need_less(config, processes))
    ways += (ways.empty() ? "" : ", or ") + way;
  throw std::runtime_error(std::string("--mode ") + to_string(config.ranks.mode) + " of " +
                           config.model.name + " needs " + with_commas(needed) + " bytes on " +
                           counted(processes, "rank") +
                           (traces && traces->has_activations ? "" : ", without activations,") +
                           " and this machine has " + with_commas(memory) + "; take " + ways);
}

}  // namespace fsdp
