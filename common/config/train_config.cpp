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

}  // namespace fsdp
