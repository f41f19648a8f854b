#include <config/train_config.h>

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
