#pragma once

#include <config/train_config.h>
#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

// The options of `./fsdp train` by subject, in files of the same names. In each group
// - add_..._options() adds the options to the program;
// - resolve_...() fills in what depends on other options, when the command line has been read;
// - check_...() throws UsageError if options contradict one another, or what is there.
// parse_train_options() calls them in an order that it says.
namespace fsdp {

// ---- ranks ----

// What its options say before it is resolved.
struct GivenRanks {
  std::string stack{"reference"}, link;
  double timeout{300};  // [s]
};
void add_ranks_options(CLI::App& app, TrainConfig& config, GivenRanks& given, int max_world);
// In a process that a launcher has started as a rank, the number of ranks is the launcher's. Throws
// UsageError if options contradict it.
void apply_world_of_environment(TrainConfig& config, bool world_given);
// Of the ranks that a launcher has started, as many train as share out the parts: after the loss of
// a host the others go on with the parts, and so with the bits, that the run began with.
void leave_ranks_spare(TrainConfig& config, std::optional<int64_t> microbatches);
void resolve_ranks(TrainConfig& config, const GivenRanks& given);
// For ranks on GPUs it counts the GPUs without using them, since this process may fork.
void check_ranks(const TrainConfig& config);
// Comes when all settings of the sum over parts are known.
void check_lost_host_option(const TrainConfig& config);

// ---- model ----

void add_model_options(CLI::App& app, TrainConfig& config);
// Adds --init, whose folder goes into `folder`.
void add_init_option(CLI::App& app, std::string& folder);
// Without --model, takes the model of --init or --resume.
void resolve_model(const CLI::App& app, TrainConfig& config);
// Compares the folder of --init with the model, and reads no tensor.
void check_init_option(const TrainConfig& config);

// ---- data ----

struct GivenData {
  std::optional<DataKind> recipe;  // published or modular
  std::optional<int64_t> modulus;
};
void add_data_options(CLI::App& app, TrainConfig& config, GivenData& given);
// Resolves all but the default of --text. Comes before other defaults are filled in, so that a
// recipe decides on them.
void resolve_data(const CLI::App& app, TrainConfig& config, const GivenData& given);
// Fills in the default of --text.
void resolve_text(TrainConfig& config);
// Comes when --seq is known: also refuses files of --tokens that are too short for a row.
void check_data(const TrainConfig& config);

// What a run takes where no option says otherwise. Comes after resolve_data(), when the number of
// parts is known.
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
void check_step_in_backward(const TrainConfig& config);  // what needs all gradients at a time
void check_min_lr(const TrainConfig& config);

// ---- sharding ----

struct GivenSharding {
  std::string strategy;  // one of strategy_names(), or empty
  std::optional<int64_t> shard_size;
};
void add_sharding_options(CLI::App& app, TrainConfig& config, GivenSharding& given, int max_world);
// What --strategy takes: our names and PyTorch's, in small letters.
std::vector<std::string> strategy_names();
// `reshard_given`: --reshard-after-forward was given.
void resolve_strategy(TrainConfig& config, const GivenSharding& given, bool reshard_given);

// ---- precision ----

struct GivenPrecision {
  std::optional<std::string> loss_scale;
  std::optional<int64_t> growth_interval;
};
void add_precision_options(CLI::App& app, TrainConfig& config, GivenPrecision& given);
// Resolves reduce_dtype and the loss scaler, which may be a checkpoint's.
void resolve_precision(const CLI::App& app, TrainConfig& config, const GivenPrecision& given);

// ---- memory ----

void add_memory_options(CLI::App& app, TrainConfig& config);
// A plan needs no folder to offload to.
void check_offload_options(const CLI::App& app, const TrainConfig& config, bool only_plans);

// ---- checkpoint ----

void add_checkpoint_options(CLI::App& app, TrainConfig& config);
// Reads which checkpoint --resume names, and with how many parts it was trained: the default of
// `parts`. Comes before defaults are filled in.
void find_checkpoint_to_resume(TrainConfig& config, std::optional<int64_t>& microbatches);
// Compares this run with the one that was saved, and with the checkpoints that are there. Comes
// when all settings are known.
void check_checkpoint_options(const CLI::App& app, const TrainConfig& config);

// ---- reports ----

void add_reports_options(CLI::App& app, TrainConfig& config);
// Refuses a file that can't be written, or that is one with another file of a report, with a text
// or with a checkpoint.
void check_reports_options(const CLI::App& app, const TrainConfig& config);

// ---- debug ----

struct GivenDebug {
  std::string fault;
};
void add_debug_options(CLI::App& app, TrainConfig& config, GivenDebug& given);
void resolve_debug(TrainConfig& config, const GivenDebug& given);

// ---- all ----

// Prints on stderr which options were given and have no effect: a line for each, by one process.
void name_unused_options(const CLI::App& app, const TrainConfig& config);

}  // namespace fsdp
