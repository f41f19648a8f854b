#pragma once

#include <config/train_config.h>
#include <CLI/CLI.hpp>

#include <optional>

namespace fsdp {

// The options of `./fsdp train` that save and resume. Each function throws UsageError.
void add_checkpoint_options(CLI::App& app, TrainConfig& config);

// Reads which checkpoint --resume names, and with how many parts it was trained: the default of
// `parts`. Comes before defaults are filled in.
void find_checkpoint_to_resume(TrainConfig& config, std::optional<int64_t>& parts);

// Compares this run with the one that was saved, and with the checkpoints that are there. Comes
// when all settings are known.
void check_checkpoint_options(const CLI::App& app, const TrainConfig& config);

}  // namespace fsdp
