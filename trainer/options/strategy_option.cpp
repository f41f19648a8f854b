#include <command_line/run_program.h>
#include <launch/launched.h>
#include <options/groups.h>

#include <algorithm>
#include <map>

namespace fsdp {
namespace {

// The settings that a value of --strategy stands for.
struct StrategyOption {
  enum class Shards { all_ranks, one_rank, as_given } shards;
  bool reshard_after_forward;
};

const std::map<std::string, StrategyOption>& strategies() {
  using enum StrategyOption::Shards;
  static const std::map<std::string, StrategyOption> all{
      {"full", {all_ranks, true}},
      {"grad_op", {all_ranks, false}},
      {"no", {one_rank, true}},
      {"hybrid", {as_given, true}},
      // PyTorch's names for the strategies
      {"full_shard", {all_ranks, true}},
      {"shard_grad_op", {all_ranks, false}},
      {"no_shard", {one_rank, true}},
      {"hybrid_shard", {as_given, true}},
      {"_hybrid_shard_zero2", {as_given, false}}};
  return all;
}

}  // namespace

std::vector<std::string> strategy_names() {
  std::vector<std::string> names{"full", "grad_op", "no", "hybrid"};
  for (const auto& [name, option] : strategies())
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names;
}

void resolve_strategy(TrainConfig& config, const GivenSharding& given, bool reshard_given) {
  const std::string& strategy = given.strategy;
  std::optional<int64_t> shard_size = given.shard_size;
  if (strategy.empty()) {
    if (shard_size) throw UsageError("--shard-size: needs --strategy hybrid");
    return;
  }
  const std::string name = "--strategy " + strategy;
  const auto& [shards, reshard] = strategies().at(strategy);
  if (shards == StrategyOption::Shards::as_given) {
    const auto self = launched_rank();
    if (!shard_size && self && self->local_world_size > 0) shard_size = self->local_world_size;
    if (!shard_size) throw UsageError(name + ": needs --shard-size");
    if (config.ranks.world % *shard_size != 0) {
      throw UsageError("--shard-size " + std::to_string(*shard_size) + ": does not divide the " +
                       std::to_string(config.ranks.world) + " ranks (--world)");
    }
    config.sharding.shard_size = static_cast<int>(*shard_size);
  } else if (shard_size) {
    throw UsageError("--shard-size: needs --strategy hybrid, not " + strategy);
  } else if (shards == StrategyOption::Shards::one_rank) {
    config.sharding.shard_size = 1;
  }
  if (reshard) return;
  if (reshard_given && config.sharding.reshard_after_forward) {
    throw UsageError(name + ": keeps units after forward; leave out --reshard-after-forward on");
  }
  config.sharding.reshard_after_forward = false;
}

}  // namespace fsdp
