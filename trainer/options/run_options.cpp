#include <command_line/command_line.h>
#include <command_line/usage.h>
#include <launch/launched.h>
#include <options/groups.h>
#include <train/going_on.h>

#include <cstdio>

namespace fsdp {
void add_lost_host_option(CLI::App& app, TrainConfig& config) {
  add_choice(app, "--on-lost-host", config.on_lost_host, {"end", "continue"},
             "with a replica on each host, what the others do when one is lost: end, or "
             "continue without it, to the same bits (default end)");
}

// The nearest number of parts, from that of `config` on and else below, with which fewer ranks go
// on to the same bits; 0 if there is none.
int parts_that_go_on(const TrainConfig& config) {
  constexpr int kMost = 1 << 12;
  std::vector<int> all;
  for (int parts = config.parts; parts <= kMost; parts += config.world)
    all.push_back(parts);
  for (int parts = config.parts - config.world; parts > 0; parts -= config.world)
    all.push_back(parts);
  for (const int parts : all) {
    TrainConfig other = config;
    other.parts = parts;
    const auto kept = with_ranks(other, config.world);
    const bool same = kept && kept->accumulate == config.accumulate;
    if (same && ranks_that_go_on(other, config.world - config.shards()) > 0) return parts;
  }
  return 0;
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
  const std::string other = parts.turns_first ? "each" : "last";
  TrainConfig accumulating = config;
  accumulating.accumulate = other;
  const auto with_other = with_ranks(accumulating, config.world);
  const int better = parts_that_go_on(config);
  const std::string first =
      with_other && with_other->accumulate == other ? "--accumulate " + other : "";
  const std::string second = better > 0 ? "--parts " + std::to_string(better) : "";
  throw UsageError(option + "fewer ranks would round the sum over " +
                   std::to_string(parts.replicas) + " replicas, " + std::to_string(parts.turns) +
                   " parts on a rank, another way; give " + first +
                   (first.empty() || second.empty() ? "" : " or ") + second +
                   (first.empty() && second.empty() ? "another --shard-size" : ""));
}

}  // namespace fsdp
