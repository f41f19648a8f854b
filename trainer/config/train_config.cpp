#include <config/train_config.h>

#include <algorithm>
#include <cmath>
#include <regex>

namespace fsdp {

namespace {

// Returns a regular expression that matches the names that both `a` and `b` match. An empty
// expression matches all names.
std::string both(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : "^(?=.*(?:" + a + "))(?=.*(?:" + b + "))";
}

}  // namespace

std::vector<ParameterGroup> OptimizerConfig::parameter_groups() const {
  std::vector<ParameterGroup> groups;
  // Adds the parameter groups for the names that match `pattern`: if no_decay is set, a group
  // without weight decay for those of these names that match no_decay, and in any case a group with
  // `options` for the rest.
  const auto add_groups = [&](const std::string& pattern, OptimizerOptions options) {
    const double decay = options.weight_decay;
    options.weight_decay = 0;
    if (!no_decay.empty()) groups.push_back({both(no_decay, pattern), options});
    options.weight_decay = decay;
    groups.push_back({pattern, options});
  };
  if (kind == Kind::muon && !adamw.empty()) {
    OptimizerOptions options = *this;
    options.kind = Kind::adamw;
    add_groups(adamw, options);
  }
  add_groups("", *this);
  return groups;
}

bool PrecisionConfig::keeps_fp32(const std::string& parameter) const {
  return !keep_fp32.empty() && std::regex_search(parameter, std::regex(keep_fp32));
}

MixedPrecisionPolicy PrecisionConfig::policy_of(const std::string& parameter) const {
  return keeps_fp32(parameter) ? MixedPrecisionPolicy{} : policy;
}

double TrainConfig::lr_of(int64_t step) const {
  const int64_t warmup = optimizer.warmup;
  if (step < warmup)
    return optimizer.lr * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (optimizer.lr_decay == LrDecay::none) return optimizer.lr;
  const auto left = static_cast<double>(std::max<int64_t>(1, training.steps - 1 - warmup));
  const double done = std::min(1.0, static_cast<double>(step - warmup) / left);
  const double share =
      optimizer.lr_decay == LrDecay::cosine ? (1 + std::cos(done * M_PI)) / 2 : 1 - done;
  return optimizer.min_lr + share * (optimizer.lr - optimizer.min_lr);
}

int TrainConfig::shards() const {
  return ranks.mode == Mode::ddp || sharding.shard_size == 0 ? ranks.world : sharding.shard_size;
}

const char* TrainConfig::sharding_strategy() const {
  if (shards() == ranks.world) return sharding.reshard_after_forward ? "full" : "grad_op";
  return shards() == 1 ? "no" : "hybrid";
}

BatchPartition TrainConfig::batch_partition() const {
  const int accumulation_steps =
      training.microbatches == 0 ? 1 : training.microbatches / ranks.world;
  return {shards(), ranks.world / shards(), accumulation_steps,
          training.reduce_gradients == ReduceGradients::last};
}

}  // namespace fsdp
