#pragma once

#include <config/train_config.h>
#include <CLI/CLI.hpp>

namespace fsdp {

// The option of `./fsdp train` that names what the parameters begin with. Each function throws
// UsageError.
void add_init_option(CLI::App& app, TrainConfig& config);

// Compares the folder with the model. Comes when all settings are known. Reads no tensor.
void check_init_option(const TrainConfig& config);

}  // namespace fsdp
