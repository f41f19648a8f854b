#include <config/train_config.h>

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

const char* TrainConfig::strategy() const {
  if (shards() == world) return reshard_after_forward ? "full" : "grad_op";
  return shards() == 1 ? "no" : "hybrid";
}

}  // namespace fsdp
