#pragma once

#include <config/train_config.h>
#include <CLI/CLI.hpp>

#include <optional>
#include <string>

namespace fsdp {

// The options of `./fsdp train` that say what is trained on.
struct DataOptions {
  std::string recipe;  // published, modular; empty: none
  std::optional<int64_t> modulus;
};

void add_data_options(CLI::App& app, TrainConfig& config, DataOptions& data);

// Settles what the options say, except the default of --text. Comes before other defaults are
// filled in, so that a recipe decides on them. Throws UsageError where options contradict one
// another.
void take_data(const CLI::App& app, TrainConfig& config, const DataOptions& data);

// What a run takes where no option says otherwise.
struct Defaults {
  int64_t steps, batch, seq;
  double lr;
};
// Comes after take_data(), when the number of parts is known.
Defaults defaults_of(const TrainConfig& config, const DataOptions& data);

}  // namespace fsdp
