#include <comm/communicator_options.h>
#include <command_line/command_line.h>
#include <cuda/gpu.h>
#include <launch/launched.h>
#include <options/choices.h>
#include <options/groups.h>
#include <options/options.h>

#include <chrono>

namespace fsdp {
namespace {

// Throws UsageError if this build or this machine cannot run the ranks on GPUs, or if an option
// needs the CPU. Does not call CUDA in this process, which forks the ranks later.
void check_cuda(const TrainConfig& config) {
  if (!gpu::built()) {
    throw UsageError(
        "--device cuda: this build has no CUDA; build with ./fsdp build --preset cuda");
  }
  if (config.debug.poison) throw UsageError("--poison: needs --device cpu");
  if (config.ranks.comm.link) throw UsageError("--link: needs --device cpu");
  const int gpus = gpu::count_gpus_before_fork();
  if (gpus == 0) throw UsageError("--device cuda: needs a GPU; this machine has none");
  const int ranks = config.ranks.mode == Mode::single ? 1 : config.ranks.world;
  if (config.ranks.comm.backend == "nccl" && ranks > gpus) {
    throw UsageError("--backend nccl: needs " + std::to_string(ranks) +
                     " GPUs, one for each rank; this machine has " + std::to_string(gpus));
  }
}

void check_compare(const TrainConfig& config) {
  const CommunicatorOptions& comm = config.ranks.comm;
  if (comm.compare.value_or(Compare::always) == Compare::always) return;
  if (comm.link)
    throw UsageError("--compare: with --link, all collectives are compared; leave it out");
  const bool shm = comm.backend == "shm" || comm.backend == "auto";
  if (shm && !config.on_cuda() && !launched_rank()) {
    throw UsageError("--compare: over shm, all collectives are compared; give --backend gloo");
  }
}

}  // namespace

void add_ranks_options(CLI::App& app, TrainConfig& config, GivenRanks& given, int max_world) {
  add_advice(app, "--gpus", "--world is the number of ranks; with --device cuda, each has a GPU");
  CommunicatorOptions& comm = config.ranks.comm;
  add_choice(app, "--mode", config.ranks.mode, choices_of({Mode::single, Mode::ddp, Mode::fsdp}),
             "single (one process computes the microbatches of all ranks), ddp (a replica on each "
             "rank) or fsdp (default single)");
  add_number(
      app, "--world", config.ranks.world, NumberRange<int64_t>{1, max_world},
      "number of ranks (default 1; under a launcher such as torchrun, the ranks it has started)");
  add_choice(app, "--stack", given.stack, {"reference", "mine"},
             "whose tasks: reference (solutions/) or mine (tasks/) (default reference)");
  add_number(app, "--threads", config.ranks.threads, NumberRange<int64_t>{1, 1024},
             "CPU threads of each rank (default 1)");
  const std::vector<std::pair<std::string, c10::DeviceType>> devices{{"cpu", c10::kCPU},
                                                                     {"cuda", c10::kCUDA}};
  add_choice(app, "--device", comm.device, devices,
             "where parameters and batches are: cpu or cuda (default cpu)");
  add_choice(app, "--backend", comm.backend, {"auto", "shm", "gloo", "nccl"},
             "what moves the bytes of collectives: auto, shm, gloo or nccl (default auto)");
  const std::vector<std::pair<std::string, Compare>> comparisons{
      {"always", Compare::always}, {"first", Compare::first_iteration}, {"never", Compare::never}};
  add_choice(
      app, "--compare", comm.compare, comparisons,
      "which collectives the ranks compare with each other: always, first (only those of the "
      "first iteration) or never (default always; first over nccl)");
  add_number(app, "--timeout", given.timeout, NumberRange<double>{0.001, 1e6},
             "seconds to wait for another rank (default 300)");
  app.add_option("--link", given.link,
                 "simulate a network with this latency and bandwidth: 200us,1GB/s (default: none)");
  add_number(app, "--flops", config.ranks.flops, positive_up_to(1e18),
             "with --link: count time instead of measuring it, as if each rank computed this many "
             "floating-point operations per second and did nothing else (default: measure)");
  add_choice(app, "--on-lost-host", config.ranks.on_lost_host,
             choices_of({OnLostHost::end, OnLostHost::continue_training}),
             "with a replica on each host, what the other ranks do when a host is lost: end, or "
             "continue without it, to the same bits (default end)");
}

void apply_world_of_environment(TrainConfig& config, bool world_given) {
  const auto self = launched_rank();
  if (!self) return;
  const std::string started =
      self->launcher + " has started " + std::to_string(self->world_size) + " ranks";
  if (config.ranks.mode == Mode::single) {
    if (self->world_size > 1) throw UsageError("--mode single is one process; " + started);
    return;
  }
  if (self->world_size > kMaxTrainingWorld) {
    throw UsageError("at most " + std::to_string(kMaxTrainingWorld) + " ranks can train; " +
                     started);
  }
  if (world_given && config.ranks.world != self->world_size) {
    throw UsageError("--world " + std::to_string(config.ranks.world) + ": leave it out; " +
                     started);
  }
  if (!config.reports.trace.empty()) {
    throw UsageError("--trace: needs ranks that one process forks; " + started);
  }
  config.ranks.world = self->world_size;
}

void leave_ranks_spare(TrainConfig& config, std::optional<int64_t> microbatches) {
  if (!microbatches || config.ranks.mode == Mode::single || !launched_rank()) return;
  while (*microbatches % config.ranks.world != 0)
    --config.ranks.world;
}

void resolve_ranks(TrainConfig& config, const GivenRanks& given) {
  config.ranks.comm.timeout = std::chrono::milliseconds(static_cast<int64_t>(given.timeout * 1000));
  if (!given.link.empty()) config.ranks.comm.link = parse_link(given.link);
}

void check_ranks(const TrainConfig& config) {
  if (config.ranks.flops > 0 && !config.ranks.comm.link)
    throw UsageError("--flops: counts the time of ranks with a simulated link; give --link");
  if (config.on_cuda()) {
    check_cuda(config);
  } else if (config.ranks.comm.backend == "nccl") {
    throw UsageError("--backend nccl: needs --device cuda");
  }
  check_compare(config);
  if (config.ranks.comm.link && config.ranks.mode == Mode::fsdp &&
      config.shards() < config.ranks.world) {
    throw UsageError("--link: simulates one replica; give --strategy full or grad_op");
  }
}

}  // namespace fsdp
