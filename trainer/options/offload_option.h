#pragma once

#include <config/train_config.h>
#include <CLI/CLI.hpp>

namespace fsdp {

// The options of `./fsdp train` that say where the optimizer's state lies. Each function throws
// UsageError.
void add_offload_options(CLI::App& app, TrainConfig& config);

// Compares them with the other settings. Comes when all are known.
void check_offload_options(const CLI::App& app, const TrainConfig& config);

}  // namespace fsdp
