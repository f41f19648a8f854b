#pragma once

#include <config/train_config.h>
#include <CLI/CLI.hpp>

namespace fsdp {

// The options of `./fsdp train` that name files which it writes: --trace, --json and --log.
void add_output_options(CLI::App& app, TrainConfig& config);

// Throws UsageError if one of them can't be written, or if it is one file with another of them,
// with a text or with a folder of checkpoints. Comes when all settings are known.
void check_output_options(const TrainConfig& config);

}  // namespace fsdp
