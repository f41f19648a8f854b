#pragma once

#include <config/train_config.h>
#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

// The options of `./fsdp train` by what they are about. The functions that begin with add_ add them
// to the program; the others come when the command line is read, and throw UsageError where options
// contradict one another.
namespace fsdp {

// What is trained on.
struct DataOptions {
  std::string recipe;  // published, modular; empty: none
  std::optional<int64_t> modulus;
};
void add_data_options(CLI::App& app, TrainConfig& config, DataOptions& data);
// Settles what they say, except the default of --text. Comes before other defaults are filled in,
// so that a recipe decides on them.
void take_data(const CLI::App& app, TrainConfig& config, const DataOptions& data);

// Throws UsageError if the files of --tokens are too short for a row. Comes when --seq is known.
void check_tokens(const TrainConfig& config);

// Throws UsageError unless the value of `option` is a regular expression, of at most 500
// characters.
void check_pattern(const std::string& option, const std::string& pattern);

inline constexpr int64_t kMaxParts = 1 << 16;

// What a run takes where no option says otherwise. Comes after take_data(), when the number of
// parts is known.
struct Defaults {
  int64_t steps, batch, seq;
  double lr;
};
Defaults defaults_of(const TrainConfig& config, const DataOptions& data);

// The model. Where --model is not given, take_model() takes that of --init or --resume.
void add_model_option(CLI::App& app, TrainConfig& config);
void take_model(const CLI::App& app, TrainConfig& config);

// What the parameters begin with. check_init_option() compares the folder with the model, and reads
// no tensor.
void add_init_option(CLI::App& app, TrainConfig& config);
void check_init_option(const TrainConfig& config);

// What --strategy takes: our names and PyTorch's, in small letters.
std::vector<std::string> strategy_names();
// Settles what `strategy` says, one of the names or empty, and `shard_size`, the value of
// --shard-size. `reshard_given`: --reshard-after-forward was given.
void take_strategy(TrainConfig& config, const std::string& strategy,
                   std::optional<int64_t> shard_size, bool reshard_given);

// --param-dtype, --reduce-dtype, --keep-fp32, --loss-scale and --growth-interval.
struct PrecisionOptions {
  std::optional<std::string> loss_scale;
  std::optional<int64_t> growth_interval;

  void add(CLI::App& app, TrainConfig& config);
  // Settles config.precision.reduce_dtype and config.loss_scaler, which may be a checkpoint's.
  void settle(const CLI::App& app, TrainConfig& config) const;
};

// What is saved and resumed. find_checkpoint_to_resume() reads which checkpoint --resume names, and
// with how many parts it was trained: the default of `parts`. It comes before defaults are filled
// in. check_checkpoint_options() compares this run with the one that was saved, and with the
// checkpoints that are there; it comes when all settings are known.
void add_checkpoint_options(CLI::App& app, TrainConfig& config);
void find_checkpoint_to_resume(TrainConfig& config, std::optional<int64_t>& parts);
void check_checkpoint_options(const CLI::App& app, const TrainConfig& config);

// Where the optimizer's state lies. A plan needs no such folder.
void add_offload_options(CLI::App& app, TrainConfig& config);
void check_offload_options(const CLI::App& app, const TrainConfig& config, bool only_plans);

// What ranks do when a host of others is lost. check_lost_host_option() comes when all settings of
// the sum over parts are known.
void add_lost_host_option(CLI::App& app, TrainConfig& config);
void check_lost_host_option(const TrainConfig& config);

// The files that a run writes: --trace, --json and --log. check_output_options() refuses one that
// can't be written, or that is one with another of them, with a text or with a checkpoint.
void add_output_options(CLI::App& app, TrainConfig& config);
void check_output_options(const CLI::App& app, const TrainConfig& config);

}  // namespace fsdp
