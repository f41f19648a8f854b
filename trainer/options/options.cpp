#include <base/text.h>
#include <command_line/command_line.h>
#include <command_line/config_file.h>
#include <nn/models.h>
#include <options/groups.h>
#include <options/options.h>
#include <options/pattern_check.h>
#include <state/checkpoint.h>

#include <set>
#include <stdexcept>

namespace fsdp {
namespace {

// The values of options as the user gives them, before the defaults that depend on other options
// are filled in.
struct Given {
  GivenRanks ranks;
  GivenData data;
  GivenTraining training;
  GivenOptimizer optimizer;
  GivenSharding sharding;
  GivenPrecision precision;
  GivenDebug debug;
};

// Adds all options in groups. The groups have the names of the members of TrainConfig, which are
// also the names of the tables in a file of --config.
void add_options(CLI::App& app, TrainConfig& config, Given& given, int max_world) {
  const auto name_group = [&app](const char* group) {
    for (CLI::Option* option : app.get_options())
      if (option->get_group() == "Options") option->group(group);
  };
  add_config_option(app);
  name_group("help");
  add_ranks_options(app, config, given.ranks, max_world);
  name_group("ranks");
  add_model_options(app, config);
  name_group("model");
  add_data_options(app, config, given.data);
  name_group("data");
  add_training_options(app, config, given.training);
  name_group("training");
  add_optimizer_options(app, config, given.optimizer);
  name_group("optimizer");
  add_sharding_options(app, config, given.sharding, max_world);
  name_group("sharding");
  add_precision_options(app, config, given.precision);
  name_group("precision");
  add_memory_options(app, config);
  name_group("memory");
  add_checkpoint_options(app, config);
  name_group("checkpoint");
  add_reports_options(app, config);
  name_group("reports");
  add_debug_options(app, config, given.debug);
  name_group("debug");
}

// For a program that only plans: replaces --resume auto by the folder of --checkpoint-dir, or by ""
// if this folder has no checkpoint. A plan uses only the model of a checkpoint, and only if --model
// is not given.
void resume_for_a_plan(TrainConfig& config) {
  CheckpointConfig& checkpoint = config.checkpoint;
  if (checkpoint.resume != "auto") return;
  const bool saved = !checkpoint.dir.empty() && latest_step(checkpoint.dir);
  checkpoint.resume = saved ? checkpoint.dir : "";
}

// For a program that only plans: clears the options about files that a run would write, a
// checkpoint that it would resume from and faults that it would have.
void leave_out_files(TrainConfig& config, Given& given) {
  ReportsConfig& reports = config.reports;
  reports.json = reports.log = reports.trace = reports.profile = "";
  reports.hashes = reports.captured_event = reports.receipt = "";
  reports.watch = 0;
  config.checkpoint.dir = config.checkpoint.resume = "";
  config.checkpoint.first_step = 0;
  config.ranks.on_lost_host = OnLostHost::end;
  given.debug.fault.clear();
}

// Fills in the defaults of options that were not given. Call it when the data, the model and the
// number of ranks are known.
void fill_in_defaults(TrainConfig& config, const Given& given, bool rows_fill_context) {
  resolve_microbatches(config, given.training);
  Defaults defaults = defaults_of(config, given.data);
  if (rows_fill_context && !given.data.recipe && config.data.kind != DataKind::modular)
    defaults.seq = model_info(config.model.name).context;
  resolve_training(config, given.training, defaults);
  resolve_optimizer(config, given.optimizer, defaults);
  resolve_ranks(config, given.ranks);
  resolve_debug(config, given.debug);
  resolve_text(config);
}

// Fills in the settings that depend on other settings, in the order in which they depend on each
// other.
void resolve(const CLI::App& app, TrainConfig& config, Given& given, const TrainParsing& parsing) {
  if (parsing.only_plans) {
    resume_for_a_plan(config);
  } else {
    apply_world_of_environment(config, app.count("--world") > 0);
    find_checkpoint_to_resume(config, given.training.microbatches);
    leave_ranks_spare(config, given.training.microbatches);
  }
  resolve_data(app, config, given.data);
  resolve_model(app, config);
  if (parsing.only_plans) leave_out_files(config, given);
  fill_in_defaults(config, given, parsing.rows_fill_context);
  check_seq(config);
  resolve_strategy(config, given.sharding, app.count("--reshard-after-forward") > 0);
  check_norm_type_option(app, config);
  check_adamw_option(app, config);
  resolve_precision(app, config, given.precision);
}

void check(const CLI::App& app, const TrainConfig& config, bool only_plans) {
  check_step_in_backward(config);
  check_ranks(config);
  check_training(config);
  check_min_lr(config);
  check_data(config);
  check_pattern("--no-decay", config.optimizer.no_decay);
  check_pattern("--adamw", config.optimizer.adamw);
  check_lora(app, config);
  check_init_option(config);
  check_offload_options(app, config, only_plans);
  if (only_plans) return;
  check_ids_of_data(config);
  check_lost_host_option(config);
  check_checkpoint_options(app, config);
  check_reports_options(app, config);
}

// Returns whether the option names a file of results, or decides what is written to one. These
// options are not saved beside a checkpoint, because a run that is repeated with the saved options
// would write over the files.
bool names_results(const CLI::Option& option) {
  static const std::set<std::string> names{
      "log",    "json",    "trace",          "profile",     "hashes", "capture",
      "record", "receipt", "receipt-sample", "receipt-key", "watch"};
  return names.contains(option.get_single_name());
}

// Returns whether a receipt leaves out the option, because no number of the run depends on it, or
// because an audit, which computes in one process, sets the option itself. If one process repeats
// the run without these options, it computes the same bits.
bool is_not_audited(const CLI::Option& option, Mode mode) {
  static const std::set<std::string> groups{"checkpoint", "reports", "debug"};
  static const std::set<std::string> names{// Options of the group
                                           // `ranks` that a receipt leaves out.
                                           "mode", "world", "stack", "device", "backend", "compare",
                                           "timeout", "link", "flops", "on-lost-host",
                                           // Options of the group `sharding` that a
                                           // receipt leaves out.
                                           "wrap", "reshard-after-forward", "prefetch", "limit",
                                           "forward-limit", "backward-limit", "meta-init",
                                           // Options of other groups that a receipt
                                           // leaves out.
                                           "offload", "offload-dir", "offload-resident",
                                           "step-in-backward", "eval-every", "stop-after",
                                           "microbatches"};
  const std::string& name = option.get_single_name();
  // In one process, --strategy and --shard-size decide in which order gradients are added, so a
  // receipt has them. In --mode ddp they have no effect, so it leaves them out.
  if (mode == Mode::ddp && (name == "strategy" || name == "shard-size")) return true;
  return groups.contains(option.get_group()) || names.contains(name);
}

// Returns whether the value of the option `name` is the path of a file or a folder that a run
// reads.
bool names_files(const std::string& name) {
  return name == "text" || name == "tokens" || name == "init";
}

}  // namespace

TrainConfig parse_train_options(const std::vector<std::string>& arguments,
                                const std::function<void(const std::string&)>& check_wrap,
                                const TrainParsing& parsing) {
  TrainConfig config;
  Given given;
  CLI::App app("Trains a model on W ranks and reports what it cost.", "fsdp train");
  app.get_formatter()->column_width(34);
  add_options(app, config, given, parsing.max_world);
  const auto resolve_and_check = [&] {
    check_wrap(config.sharding.wrap);
    resolve(app, config, given, parsing);
    check(app, config, parsing.only_plans);
  };
  parse_command_line(app, arguments, resolve_and_check, parsing.other_options);
  if (parsing.only_plans) return config;
  name_unused_options(app, config);
  config.reports.saved_options = config_of(app, names_results);
  config.reports.audited_options = config_of(
      app, [&](const CLI::Option& option) { return is_not_audited(option, config.ranks.mode); });
  return config;
}

void check_audited_options(const std::string& text, bool no_files,
                           const std::set<std::string>& replaced) {
  TrainConfig config;
  Given given;
  CLI::App app;
  add_options(app, config, given, kMaxTrainingWorld);
  for (const ConfigLine& line : read_config(text)) {
    const std::string name = "--" + one_line(line.name);
    const CLI::Option* option = app.get_option_no_throw("--" + line.name);
    // Passes Mode::fsdp because the receipt may be of a run in any mode: with Mode::ddp,
    // is_not_audited() would return true for --strategy and --shard-size too.
    const bool is_audited = option != nullptr && option->get_single_name() == line.name &&
                            option->get_configurable() && !is_not_audited(*option, Mode::fsdp);
    if (!is_audited) throw std::invalid_argument(name + ": no run writes it into a receipt");
    if (no_files && names_files(line.name) && !replaced.contains(line.name))
      throw std::invalid_argument(name + ": names a file; give your own with --options");
  }
}

}  // namespace fsdp
