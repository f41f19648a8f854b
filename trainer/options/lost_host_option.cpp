#include <command_line/run_program.h>
#include <command_line/usage.h>
#include <launch/launched.h>
#include <options/groups.h>
#include <train/fewer_ranks.h>

#include <cstdio>
#include <string>
#include <vector>

namespace fsdp {
namespace {

// Returns a number of microbatches with which, after the loss of a host, fewer ranks can continue
// with the bits of a run without the loss. Of several such numbers, returns the smallest one from
// config.training.microbatches to kMost or, if there is none, the largest one below
// config.training.microbatches. Returns 0 if there is no such number at all.
int parts_that_go_on(const TrainConfig& config) {
  constexpr int kMost = 1 << 12;
  std::vector<int> all;
  for (int microbatches = config.training.microbatches; microbatches <= kMost;
       microbatches += config.ranks.world)
    all.push_back(microbatches);
  for (int microbatches = config.training.microbatches - config.ranks.world; microbatches > 0;
       microbatches -= config.ranks.world)
    all.push_back(microbatches);
  for (const int microbatches : all) {
    TrainConfig other = config;
    other.training.microbatches = microbatches;
    const auto kept = with_ranks(other, config.ranks.world);
    const bool same = kept && kept->training.reduce_gradients == config.training.reduce_gradients;
    if (same && ranks_that_go_on(other, config.ranks.world - config.shards()) > 0)
      return microbatches;
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
    throw UsageError(option + "needs ranks that a launcher has started on several hosts");
  if (config.on_cuda()) throw UsageError(option + "needs --device cpu");
  if (config.optimizer.step_in_backward)
    throw UsageError(
        option +
        "repeats the step that a loss interrupts; --step-in-backward on may have updated "
        "units in it");
  const auto kept = with_ranks(config, config.ranks.world);
  if (kept && kept->training.reduce_gradients == config.training.reduce_gradients) return;
  const BatchPartition partition = config.batch_partition();
  const ReduceGradients other =
      partition.reduce_last ? ReduceGradients::each : ReduceGradients::last;
  TrainConfig accumulating = config;
  accumulating.training.reduce_gradients = other;
  const auto with_other = with_ranks(accumulating, config.ranks.world);
  const int better = parts_that_go_on(config);
  const bool other_helps = with_other && with_other->training.reduce_gradients == other;
  const std::string first =
      other_helps ? std::string("--reduce-gradients ") + to_string(other) : "";
  const std::string second = better > 0 ? "--microbatches " + std::to_string(better) : "";
  throw UsageError(option + "with fewer ranks, the sum over " + std::to_string(partition.replicas) +
                   " replicas, " + std::to_string(partition.accumulation_steps) +
                   " microbatches on each rank, would be rounded differently; give " + first +
                   (first.empty() || second.empty() ? "" : " or ") + second +
                   (first.empty() && second.empty() ? "another --shard-size" : ""));
}

}  // namespace fsdp
