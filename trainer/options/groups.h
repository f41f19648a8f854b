#pragma once

#include <config/train_config.h>
#include <state/checkpoint.h>

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

// The options of `./fsdp train` by subject, in files SUBJECT_options.cpp. Most functions are of
// three kinds:
// - add_..._options() adds the options to the program;
// - resolve_...() fills in the settings that depend on other options, when the command line has
//   been parsed;
// - check_...() throws UsageError if an option contradicts another option, or the files and devices
//   of this machine.
// parse_train_options() calls the functions of all groups in the order in which they depend on each
// other.
namespace fsdp {

// ---- ranks ----

// The values of the options before they are resolved.
struct GivenRanks {
  std::string stack{"reference"}, link;
  double timeout{300};  // [s]
};
void add_ranks_options(CLI::App& app, TrainConfig& config, GivenRanks& given, int max_world);
// In a process that a launcher has started as a rank, sets the number of ranks to the launcher's,
// except in --mode single. Throws UsageError if options contradict the launcher.
void apply_world_of_environment(TrainConfig& config, bool world_given);
// For ranks that a launcher has started: if `microbatches` is set, reduces the number of ranks that
// train until it divides `microbatches`; the other ranks are spare. So after the loss of a host, a
// run can continue on the remaining ranks with the microbatches with which it began. Does nothing
// in --mode single.
void leave_ranks_spare(TrainConfig& config, std::optional<int64_t> microbatches);
void resolve_ranks(TrainConfig& config, const GivenRanks& given);
// Throws UsageError if --device, --backend, --compare, --link or --flops contradicts another
// option, this build, or the GPUs of this machine. Another process counts the GPUs, so this process
// can still fork ranks that use them.
void check_ranks(const TrainConfig& config);
// Call it when all settings of the sum over microbatches are known.
void check_lost_host_option(const TrainConfig& config);

// ---- model ----

void add_model_options(CLI::App& app, TrainConfig& config);
// What a program does with --init.
struct InitUse {
  std::string default_model;      // text for the help: what it uses without --init
  std::string checkpoint_option;  // its option for a checkpoint, which --init does not take
};
// Adds --init, which stores its folder in `folder`.
void add_init_option(CLI::App& app, std::string& folder, const InitUse& use);
// If --model is not given, uses the model of --init or --resume.
void resolve_model(const CLI::App& app, TrainConfig& config);
// Throws UsageError if --freeze or an option of adapters contradicts another option, or if its
// pattern matches nothing in the model. Makes no model.
void check_lora(const CLI::App& app, const TrainConfig& config);
// Throws UsageError if the folder of --init does not fit the model. Reads no tensor.
void check_init_option(const TrainConfig& config);

// ---- data ----

struct GivenData {
  std::optional<DataKind> recipe;  // published or modular
  std::optional<int64_t> modulus;
};
void add_data_options(CLI::App& app, TrainConfig& config, GivenData& given);
// Resolves all data options except the default of --text. Call it before other defaults are filled
// in, because a recipe decides on them.
void resolve_data(const CLI::App& app, TrainConfig& config, const GivenData& given);
// Fills in the default of --text.
void resolve_text(TrainConfig& config);
// Call it when --seq is known: throws UsageError also if a file of --tokens is too short for a row.
void check_data(const TrainConfig& config);

// The settings of a run for which no option is given. Call defaults_of() after resolve_data(), when
// the number of microbatches is known.
struct Defaults {
  int64_t steps, batch, seq;
  double lr;
};
Defaults defaults_of(const TrainConfig& config, const GivenData& given);

// ---- training ----

inline constexpr int64_t kMaxMicrobatches = 1 << 16;

struct GivenTraining {
  std::optional<int64_t> steps, batch, seq, microbatches;
};
void add_training_options(CLI::App& app, TrainConfig& config, GivenTraining& given);
void resolve_microbatches(TrainConfig& config, const GivenTraining& given);
void resolve_training(TrainConfig& config, const GivenTraining& given, const Defaults& defaults);
void check_seq(const TrainConfig& config);
void check_training(const TrainConfig& config);

// ---- optimizer ----

struct GivenOptimizer {
  std::optional<double> lr;
};
void add_optimizer_options(CLI::App& app, TrainConfig& config, GivenOptimizer& given);
void resolve_optimizer(TrainConfig& config, const GivenOptimizer& given, const Defaults& defaults);
void check_norm_type_option(const CLI::App& app, const TrainConfig& config);
void check_adamw_option(const CLI::App& app, const TrainConfig& config);
// Throws UsageError if --step-in-backward is on with --mode fsdp, and another option needs the
// gradients of several units at a time.
void check_step_in_backward(const TrainConfig& config);
void check_min_lr(const TrainConfig& config);

// ---- sharding ----

struct GivenSharding {
  std::string strategy;  // one of strategy_names(); empty: not given
  std::optional<int64_t> shard_size;
};
void add_sharding_options(CLI::App& app, TrainConfig& config, GivenSharding& given, int max_world);
// Returns the names that --strategy takes, this program's and PyTorch's, in small letters.
std::vector<std::string> strategy_names();
// Resolves --strategy and --shard-size. `reshard_given`: whether --reshard-after-forward was given.
void resolve_strategy(TrainConfig& config, const GivenSharding& given, bool reshard_given);

// ---- precision ----

struct GivenPrecision {
  std::optional<std::string> loss_scale;
  std::optional<int64_t> growth_interval;
};
void add_precision_options(CLI::App& app, TrainConfig& config, GivenPrecision& given);
// Resolves reduce_dtype and the loss scaler, which a checkpoint may have set.
void resolve_precision(const CLI::App& app, TrainConfig& config, const GivenPrecision& given);

// ---- memory ----

void add_memory_options(CLI::App& app, TrainConfig& config);
// `only_plans`: the program only plans, so the folder of --offload-dir need not exist.
void check_offload_options(const CLI::App& app, const TrainConfig& config, bool only_plans);

// ---- checkpoint ----

void add_checkpoint_options(CLI::App& app, TrainConfig& config);
// Returns find_checkpoint(path). Throws UsageError, which begins with `option`, if it throws.
Checkpoint checkpoint_of_option(const std::string& option, const std::string& path);
// Finds the checkpoint that --resume names, and sets the first step and the loss scaler of the run
// to those of the checkpoint. If --microbatches was not given, sets `microbatches` to the number of
// microbatches of the checkpoint. Call it before defaults are filled in.
void find_checkpoint_to_resume(TrainConfig& config, std::optional<int64_t>& microbatches);
// Compares this run with the run that was saved, and with the checkpoints in --checkpoint-dir. If
// --resume auto finds a checkpoint after the last step, prints this and ends the process with
// status 0. Call it when all settings are known.
void check_checkpoint_options(const CLI::App& app, const TrainConfig& config);

// ---- reports ----

void add_reports_options(CLI::App& app, TrainConfig& config);
// Throws UsageError if a file of results can't be written, is also another file of the run, or has
// earlier results that would be lost.
void check_reports_options(const CLI::App& app, const TrainConfig& config);

// ---- debug ----

struct GivenDebug {
  std::string fault;
};
void add_debug_options(CLI::App& app, TrainConfig& config, GivenDebug& given);
void resolve_debug(TrainConfig& config, const GivenDebug& given);

// ---- all ----

// Prints on stderr the options that were given and have no effect, one line for each, and a line if
// --lr is not reached before the run ends. Under a launcher only rank 0 prints. Prints nothing with
// --print-units.
void name_unused_options(const CLI::App& app, const TrainConfig& config);

}  // namespace fsdp
