#include <command_line/command_line.h>
#include <command_line/usage.h>
#include <launch/launched.h>
#include <options/groups.h>
#include <train/fewer_ranks.h>

#include <cstdio>
#include <string>
#include <vector>

namespace fsdp {
namespace {

// Returns the nearest number of parts with which fewer ranks go on to the same bits: the next one
// from that of `config` on, else the next one below; 0 if there is none.
int parts_that_go_on(const TrainConfig& config) {
  constexpr int kMost = 1 << 12;
  std::vector<int> all;
  for (int parts = config.training.parts; parts <= kMost; parts += config.ranks.world)
    all.push_back(parts);
  for (int parts = config.training.parts - config.ranks.world; parts > 0;
       parts -= config.ranks.world)
    all.push_back(parts);
  for (const int parts : all) {
    TrainConfig other = config;
    other.training.parts = parts;
    const auto kept = with_ranks(other, config.ranks.world);
    const bool same = kept && kept->training.accumulate == config.training.accumulate;
    if (same && ranks_that_go_on(other, config.ranks.world - config.shards()) > 0) return parts;
  }
  return 0;
}

}  // namespace

void check_lost_host_option(const TrainConfig& config) {
  if (config.ranks.on_lost_host != OnLostHost::continue_training) return;
  if (config.shards() == config.ranks.world) {
    const auto self = launched_rank();
    if (!self || self->rank == 0)
      std::fprintf(stderr, "fsdp train: --on-lost-host has no effect with one replica\n");
    return;
  }
  const std::string option = "--on-lost-host continue: ";
  if (!launched_rank())
    throw UsageError(option + "takes ranks that a launcher has started, on several hosts");
  if (config.on_cuda()) throw UsageError(option + "takes --device cpu");
  if (config.optimizer.step_in_backward)
    throw UsageError(option + "takes a step back, which --step-in-backward on has begun to make");
  const auto kept = with_ranks(config, config.ranks.world);
  if (kept && kept->training.accumulate == config.training.accumulate) return;
  const BatchPartition parts = config.batch_partition();
  const Accumulate other = parts.turns_first ? Accumulate::each : Accumulate::last;
  TrainConfig accumulating = config;
  accumulating.training.accumulate = other;
  const auto with_other = with_ranks(accumulating, config.ranks.world);
  const int better = parts_that_go_on(config);
  const bool other_helps = with_other && with_other->training.accumulate == other;
  const std::string first = other_helps ? std::string("--accumulate ") + to_string(other) : "";
  const std::string second = better > 0 ? "--parts " + std::to_string(better) : "";
  throw UsageError(option + "fewer ranks would round the sum over " +
                   std::to_string(parts.replicas) + " replicas, " + std::to_string(parts.turns) +
                   " parts on a rank, another way; give " + first +
                   (first.empty() || second.empty() ? "" : " or ") + second +
                   (first.empty() && second.empty() ? "another --shard-size" : ""));
}

}  // namespace fsdp
