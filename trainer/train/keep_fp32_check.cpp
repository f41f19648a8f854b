#include <train/keep_fp32_check.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {

void check_keep_fp32(const TrainConfig& config, const ShardLayout& layout) {
  const auto kept = [&](const auto& parameter) {
    return config.precision.keeps_fp32(parameter.name);
  };
  const auto& parameters = layout.parameters;
  if (config.precision.keep_fp32.empty() || std::ranges::any_of(parameters, kept)) return;
  throw std::invalid_argument("--keep-fp32 " + config.precision.keep_fp32 + ": no parameter of " +
                              config.model.name + " has such a name; the last one is " +
                              parameters.back().name);
}

}  // namespace fsdp
