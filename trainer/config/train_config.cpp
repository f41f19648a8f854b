#include <config/train_config.h>

#include <algorithm>
#include <cmath>
#include <regex>

namespace fsdp {

std::vector<ParameterGroup> TrainConfig::parameter_groups() const {
  std::vector<ParameterGroup> groups;
  if (!no_decay.empty()) {
    groups.push_back({no_decay, optimizer});
    groups.back().options.weight_decay = 0;
  }
  groups.push_back({"", optimizer});
  return groups;
}

double TrainConfig::lr_of(int64_t step) const {
  if (step < warmup)
    return optimizer.lr * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (lr_decay.empty()) return optimizer.lr;
  const auto left = static_cast<double>(std::max<int64_t>(1, steps - 1 - warmup));
  const double done = std::min(1.0, static_cast<double>(step - warmup) / left);
  const double share = lr_decay == "cosine" ? (1 + std::cos(done * M_PI)) / 2 : 1 - done;
  return min_lr + share * (optimizer.lr - min_lr);
}

bool TrainConfig::keeps_fp32(const std::string& parameter) const {
  return !keep_fp32.empty() && std::regex_search(parameter, std::regex(keep_fp32));
}

MixedPrecisionPolicy TrainConfig::precision_of(const std::string& parameter) const {
  return keeps_fp32(parameter) ? MixedPrecisionPolicy{} : precision;
}

const char* TrainConfig::strategy() const {
  if (shards() == world) return reshard_after_forward ? "full" : "grad_op";
  return shards() == 1 ? "no" : "hybrid";
}

}  // namespace fsdp
