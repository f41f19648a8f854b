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

// The values of --stack, --link and --timeout as the user gives them.
struct GivenRanks {
  std::string stack{"reference"}, link;
  double timeout{300};  // number of seconds that a rank waits for another rank
};
void add_ranks_options(CLI::App& app, TrainConfig& config, GivenRanks& given, int max_world);
// If a launcher has started this process as a rank, sets the number of ranks to that of the
// launcher, except in --mode single. Throws UsageError if options contradict the launcher.
void apply_world_of_environment(TrainConfig& config, bool world_given);
// If a launcher has started this process as a rank and `microbatches` is set, reduces the number of
// ranks that train until it divides `microbatches`; the other ranks are spare. So after the loss of
// a host, a run can continue on the remaining ranks with the microbatches with which it began. Does
// nothing in --mode single.
void leave_ranks_spare(TrainConfig& config, std::optional<int64_t> microbatches);
void resolve_ranks(TrainConfig& config, const GivenRanks& given);
// Throws UsageError if --device, --backend, --compare, --link or --flops contradicts another
// option, this build, or the GPUs of this machine. Another process counts the GPUs, so this process
// can still fork ranks that use them.
void check_ranks(const TrainConfig& config);
// Throws UsageError if --on-lost-host continue contradicts another option, or if, after the loss of
// a host, the remaining ranks could not continue with the bits of a run without the loss. Call it
// when all settings that decide the order of the sum over microbatches are known.
void check_lost_host_option(const TrainConfig& config);

// ---- model ----

void add_model_options(CLI::App& app, TrainConfig& config);
// Parts of the texts about --init (the help and an error message) that differ between the programs
// that have this option.
struct InitUse {
  std::string default_model;  // for the help: what the program uses without --init
  // For an error message: the program's option that takes a checkpoint, because --init takes none.
  std::string checkpoint_option;
};
// Adds the option --init hf:FOLDER, which stores FOLDER in `folder`.
void add_init_option(CLI::App& app, std::string& folder, const InitUse& use);
// Fills in the defaults of the LoRA options. If --model is not given, uses the model of the folder
// of --init or of the checkpoint of --resume.
void resolve_model(const CLI::App& app, TrainConfig& config);
// Throws UsageError if --freeze or a LoRA option contradicts another option, or if the pattern of
// --freeze or --lora-target matches nothing in the model. Does not build the model.
void check_lora(const CLI::App& app, const TrainConfig& config);
// Throws UsageError if the folder of --init does not fit the model. Reads config.json and the
// headers of the files, but no values of tensors.
void check_init_option(const TrainConfig& config);

// ---- data ----

struct GivenData {
  std::optional<DataKind> recipe;  // value of --recipe: published or modular; empty: not given
  std::optional<int64_t> modulus;
};
void add_data_options(CLI::App& app, TrainConfig& config, GivenData& given);
// Fills in all settings of the data except the default of --text. Call it before other defaults are
// filled in, because they depend on --recipe.
void resolve_data(const CLI::App& app, TrainConfig& config, const GivenData& given);
// If the run trains on text and --text is not given, sets the files to the text of this repository.
void resolve_text(TrainConfig& config);
// Throws UsageError if a file of --text can't be read, or if a file of --tokens is too short for a
// row of --seq tokens. Call it when --seq is known.
void check_data(const TrainConfig& config);

// Throws UsageError if a token of the data is not below the number of ids of the model, so that the
// run ends before its ranks start. Of a very large file of --tokens, only the first ids are read.
// Under a launcher only rank 0 checks. Call it when the model is known.
void check_ids_of_data(const TrainConfig& config);

// The values of --steps, --batch, --seq and --lr in a run that does not give them. Call
// defaults_of() after resolve_data(), when the number of microbatches is known.
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
// Throws UsageError if --step-in-backward on is given in --mode fsdp together with an option that
// needs the gradients of several units at a time.
void check_step_in_backward(const TrainConfig& config);
void check_min_lr(const TrainConfig& config);

// ---- sharding ----

struct GivenSharding {
  std::string strategy;  // value of --strategy, one of strategy_names(); empty: not given
  std::optional<int64_t> shard_size;
};
void add_sharding_options(CLI::App& app, TrainConfig& config, GivenSharding& given, int max_world);
// Returns the names that --strategy takes, in small letters: those of this program, and PyTorch's.
std::vector<std::string> strategy_names();
// Sets shard_size and reshard_after_forward as --strategy and --shard-size say. `reshard_given`:
// whether the user gave --reshard-after-forward. Throws UsageError if these options contradict one
// another.
void resolve_strategy(TrainConfig& config, const GivenSharding& given, bool reshard_given);

// ---- precision ----

struct GivenPrecision {
  std::optional<std::string> loss_scale;
  std::optional<int64_t> growth_interval;
};
void add_precision_options(CLI::App& app, TrainConfig& config, GivenPrecision& given);
// Fills in reduce_dtype and the loss scaler. If the run resumes from a checkpoint, `config` already
// has the checkpoint's loss scaler; it is kept unless options change it.
void resolve_precision(const CLI::App& app, TrainConfig& config, const GivenPrecision& given);

// ---- memory ----

void add_memory_options(CLI::App& app, TrainConfig& config);
// Throws UsageError if --offload or one of its options contradicts another option, or if files
// can't be written to the folder of --offload-dir. `only_plans`: the program only plans, so the
// folder need not exist.
void check_offload_options(const CLI::App& app, const TrainConfig& config, bool only_plans);

// ---- checkpoint ----

void add_checkpoint_options(CLI::App& app, TrainConfig& config);
// Returns find_checkpoint(path). If find_checkpoint() throws, throws UsageError, whose text begins
// with `option`.
Checkpoint checkpoint_of_option(const std::string& option, const std::string& path);
// Finds the checkpoint that --resume names, and sets the first step and the loss scaler of the run
// to those of the checkpoint. If --microbatches was not given, sets `microbatches` to the number of
// microbatches of the checkpoint. Call it before defaults are filled in.
void find_checkpoint_to_resume(TrainConfig& config, std::optional<int64_t>& microbatches);
// Throws UsageError if this run does not continue the run that saved the checkpoint of --resume, or
// if --checkpoint-dir has checkpoints that this run would overwrite. If --resume auto finds a
// checkpoint after the last step, prints this and ends the process with status 0. Call it when all
// settings are known.
void check_checkpoint_options(const CLI::App& app, const TrainConfig& config);

// ---- reports ----

void add_reports_options(CLI::App& app, TrainConfig& config);
// Throws UsageError if the path of a file of results can't be written, is also the path of another
// file of the run, or has earlier results that would be lost.
void check_reports_options(const CLI::App& app, const TrainConfig& config);

// ---- debug ----

struct GivenDebug {
  std::string fault;
};
void add_debug_options(CLI::App& app, TrainConfig& config, GivenDebug& given);
void resolve_debug(TrainConfig& config, const GivenDebug& given);

// ---- the options of all groups ----

// Prints on stderr the options that were given and have no effect, one line for each, and a line if
// the warmup is so long that the run ends before the rate reaches --lr. Under a launcher only rank
// 0 prints. Prints nothing with --print-units.
void name_unused_options(const CLI::App& app, const TrainConfig& config);

}  // namespace fsdp
