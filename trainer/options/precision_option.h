#pragma once

#include <config/train_config.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace fsdp {

// --param-dtype, --reduce-dtype, --keep-fp32, --loss-scale and --growth-interval.
struct PrecisionOptions {
  std::optional<std::string> loss_scale;
  std::optional<int64_t> growth_interval;

  void add(CLI::App& app, TrainConfig& config);

  // Settles what depends on other options: config.precision.reduce_dtype and config.loss_scaler,
  // which may be that of a checkpoint. Throws UsageError where options contradict each other.
  void settle(const CLI::App& app, TrainConfig& config) const;
};

}  // namespace fsdp
