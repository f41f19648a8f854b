#include <comm/launched.h>
#include <command_line/command_line.h>
#include <options/groups.h>
#include <train/going_on.h>

#include <cstdio>

namespace fsdp {

void add_lost_host_option(CLI::App& app, TrainConfig& config) {
  app.add_option("--on-lost-host", config.on_lost_host,
                 "with a replica on each host, what the others do when one is lost: end, or "
                 "continue without it, to the same bits (default end)")
      ->check(CLI::IsMember({"end", "continue"}));
}

void check_lost_host_option(const TrainConfig& config) {
  if (config.on_lost_host != "continue") return;
  if (config.shards() == config.world) {
    const auto self = started_rank();
    if (!self || self->rank == 0)
      std::fprintf(stderr, "fsdp train: --on-lost-host has no effect with one replica\n");
    return;
  }
  const std::string option = "--on-lost-host continue: ";
  if (!started_rank())
    throw UsageError(option + "takes ranks that a launcher has started, on several hosts");
  if (config.on_cuda()) throw UsageError(option + "takes --device cpu");
  if (config.step_in_backward)
    throw UsageError(option + "takes a step back, which --step-in-backward on has begun to make");
  const auto kept = with_ranks(config, config.world);
  if (kept && kept->accumulate == config.accumulate) return;
  const Arrangement parts = config.arrangement();
  throw UsageError(option + "fewer ranks would round the sum over " +
                   std::to_string(parts.replicas) + " replicas, " + std::to_string(parts.turns) +
                   " parts on a rank, another way; give --accumulate " +
                   (parts.turns_first ? "each" : "last") + " or other --parts");
}

}  // namespace fsdp
