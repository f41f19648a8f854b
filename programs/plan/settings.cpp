#include <base/text.h>
#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <command_line/config_file.h>
#include <command_line/usage.h>
#include <options/groups.h>
#include <options/options.h>
#include <plan/machines.h>
#include <plan/settings.h>
#include <strategies/fsdp/wrap_option.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <utility>

namespace fsdp {
namespace {

constexpr int kMaxWorld = 1 << 16;

// Parses a number with an optional power of ten and the unit: "80GB" with the unit "B", "312T" with
// the unit "".
double parse_amount(const std::string& option, const std::string& text, const std::string& unit) {
  static const std::map<std::string, double> kPowers{{"", 1},    {"k", 1e3},  {"M", 1e6},
                                                     {"G", 1e9}, {"T", 1e12}, {"P", 1e15}};
  std::smatch match;
  if (!std::regex_match(text, match, std::regex("([0-9.]{1,20})([kMGTP]?)" + unit)))
    throw UsageError(option + " " + text + ": must be a number such as 80G" + unit);
  return parse_number(option, match[1], positive_up_to(1e18)) * kPowers.at(match[2]);
}

Link parse_link_of(const std::string& option, const std::string& text) {
  try {
    return parse_link(text);
  } catch (const std::invalid_argument& error) {
    throw UsageError(option + ": " + error.what());
  }
}

// Parses the value of --world: one number of ranks, "64", or a range that doubles: "8..64" is 8,
// 16, 32, 64.
std::vector<int64_t> parse_worlds(const std::string& text) {
  const NumberRange<int64_t> range{1, kMaxWorld};
  const size_t dots = text.find("..");
  std::vector<int64_t> worlds{parse_number("--world", text.substr(0, dots), range)};
  if (dots == std::string::npos) return worlds;
  const auto last = parse_number("--world", text.substr(dots + 2), range);
  while (2 * worlds.back() <= last)
    worlds.push_back(2 * worlds.back());
  return worlds;
}

bool given(const std::vector<std::string>& options, const std::string& name) {
  return std::any_of(options.begin(), options.end(), [&](const std::string& option) {
    return option == name || option.starts_with(name + "=");
  });
}

// Returns the value of the option `name` in the file of --config; nothing if the file lacks it.
std::optional<std::string> in_file(const std::vector<ConfigLine>& file, const std::string& name) {
  for (const ConfigLine& line : file)
    if (line.name == name && !line.values.empty()) return line.values.front();
  return std::nullopt;
}

// The options of ./fsdp train that the command line of ./fsdp plan and the file of its --config
// give.
class GivenOptions {
 public:
  GivenOptions(std::vector<std::string> options, std::optional<int64_t> rows)
      : options_(std::move(options)), file_(config_among(options_)), rows_(rows) {
    if (rows_ && given(options_, "--batch"))
      throw UsageError("--rows and --batch: give only one of them");
  }

  const std::vector<ConfigLine>& file() const { return file_; }
  bool say(const std::string& name) const {
    return given(options_, "--" + name) || in_file(file_, name);
  }
  bool say_one_of(const std::vector<std::string>& names) const {
    return std::ranges::any_of(names, [&](const std::string& name) { return say(name); });
  }
  // Returns whether rows should be as long as the model's context, because neither --seq nor
  // --recipe sets their length. Returns false with --config: the plan is then about the run that
  // the file describes, so its rows are as long as ./fsdp train would make them.
  bool leave_seq_open() const { return file_.empty() && !say("seq") && !say("recipe"); }

  bool leave_data_open() const { return !say_one_of({"data", "recipe", "text", "tokens"}); }

  // Returns the options of ./fsdp train for the run on `world` ranks, without --world.
  std::vector<std::string> of_train(int64_t world) const {
    std::vector<std::string> options = options_;
    if (!say("mode")) options.insert(options.end(), {"--mode", "fsdp"});
    if (rows_) options.insert(options.end(), {"--batch", std::to_string(*rows_ * world)});
    // The file of --config may describe a run on another number of ranks. If `world` does not
    // divide the number of microbatches in the file, each rank computes one microbatch.
    const auto microbatches = in_file(file_, "microbatches");
    if (microbatches && !given(options_, "--microbatches") &&
        parse_number<int64_t>("--microbatches", *microbatches, {1, kMaxMicrobatches}) % world != 0)
      options.insert(options.end(), {"--microbatches", std::to_string(world)});
    return options;
  }

  // Returns the options of ./fsdp train for the run on `world` ranks that is planned. If no option
  // sets the data or the number of steps, adds --data pattern or --steps 3.
  std::vector<std::string> of_plan(int64_t world) const {
    std::vector<std::string> options = of_train(world);
    if (leave_data_open()) options.insert(options.end(), {"--data", "pattern"});
    if (!say("steps")) options.insert(options.end(), {"--steps", "3"});
    options.insert(options.end(), {"--world", std::to_string(world)});
    return options;
  }

  // Returns which settings a search may vary: those that no option sets and that ./fsdp train
  // supports for this run. For example, train does not offload on a GPU.
  Searched searched(const TrainConfig& config, bool on_gpus) const {
    const bool rows = !rows_ && !(say("batch") && say("microbatches"));
    const bool in_files = !on_gpus && config.optimizer.kind != OptimizerOptions::Kind::sgd;
    return {
        .strategy = !say_one_of({"strategy", "shard-size", "reshard-after-forward"}),
        .limit = !say_one_of({"limit", "forward-limit", "backward-limit", "prefetch"}),
        .recomputation = !say("checkpoint-activations"),
        .dtype = !say_one_of({"param-dtype", "reduce-dtype", "keep-fp32", "loss-scale"}),
        .step_in_backward = !say("step-in-backward") && !config.optimizer.clip,
        .offload = !say_one_of({"offload", "offload-dir"}) && in_files,
        .rows = rows && config.ranks.mode != Mode::single,
        .batch = !say("batch"),
    };
  }

 private:
  std::vector<std::string> options_;
  std::vector<ConfigLine> file_;
  // The value of --rows: the number of batch rows of each rank. It is given instead of --batch.
  std::optional<int64_t> rows_;
};

// Returns the names, without dashes, of the options that plan itself has, not of those of train.
std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  return names;
}

// The values of --machine and of the options that describe a machine (--memory, --intra, ...),
// before resolve_machine() combines them. An option replaces the value that --machine sets.
struct MachineOptions {
  std::string name, memory, within, between, flops;
  std::optional<int> ranks_per_host;
};

void add_machine_options(CLI::App& app, PlanSettings& settings, MachineOptions& given) {
  app.add_option("--machine", given.name,
                 "hosts of known GPUs, such as 8xA100-80GB: sets the next five options, which "
                 "replace its values. Known are " +
                     in_a_row(gpu_names(), "and"))
      ->type_name("NxGPU");
  app.add_option("--memory", given.memory, "memory of a rank: 80GB");
  add_number(app, "--gpus-per-host", given.ranks_per_host, NumberRange<int64_t>{1, kMaxWorld},
             "ranks of a host (default 8)");
  app.add_option("--intra", given.within,
                 "links within a host: latency and bandwidth, 5us,300GB/s");
  app.add_option("--inter", given.between, "links between hosts: 20us,25GB/s");
  app.add_option("--flops", given.flops, "operations that a rank computes per second: 312T");
  add_choice(app, "--backend", settings.machine.backend, {"shm", "gloo", "nccl"},
             "the backend whose buffers are counted: shm, gloo, or nccl for ranks on GPUs "
             "(default nccl)");
}

void resolve_machine(const CLI::App& app, PlanSettings& settings, const MachineOptions& given) {
  Machine& machine = settings.machine;
  if (!given.name.empty()) {
    if (app.count("--backend") > 0 && machine.backend != "nccl")
      throw UsageError("--machine: its ranks are on GPUs; leave out --backend " + machine.backend);
    const KnownMachine known = parse_machine(given.name);
    machine = known.machine;
    settings.machine_name = known.name;
    settings.memory = known.memory;
  }
  if (!given.memory.empty())
    settings.memory = std::llround(parse_amount("--memory", given.memory, "B"));
  if (given.ranks_per_host) machine.ranks_per_host = *given.ranks_per_host;
  if (!given.within.empty()) machine.within = parse_link_of("--intra", given.within);
  if (!given.between.empty()) {
    machine.between = parse_link_of("--inter", given.between);
    machine.links_of_ring = 1;
  }
  if (given.flops.empty()) return;
  machine.flops = parse_amount("--flops", given.flops, "");
  machine.flops_in_16_bits = 0;
}

}  // namespace

PlanSettings parse_plan_options(const std::vector<std::string>& arguments) {
  PlanSettings settings;
  MachineOptions given;
  std::string worlds{"1"};
  std::optional<int64_t> rows;
  CLI::App app(
      "Predicts what a step of ./fsdp train costs on each of W ranks, without starting ranks and "
      "without the model's memory, or finds settings that fit (--search). Takes the options of "
      "train too, also from --config, the run.toml of a run. Unless they are given, --mode is "
      "fsdp, --seq the model's context, --data pattern and --steps 3.",
      "fsdp plan");
  app.allow_extras();
  app.add_option("--world", worlds,
                 "ranks: W, or A..B for A, 2A, 4A, ... (default 1, or the GPUs of --machine)");
  add_number(app, "--rows", rows, NumberRange<int64_t>{1, kMany},
             "batch rows of each rank, in place of --batch");
  add_machine_options(app, settings, given);
  app.add_flag("--search", settings.search,
               "find the settings that fit: plan every strategy, recomputation, dtype, number of "
               "rows and so on that no option decides");
  app.add_option("--svg", settings.svg,
                 "write a chart of the peaks, by number of ranks or by line of --search");
  app.add_flag("--json", settings.json, "print one line of JSON for each plan");
  parse_command_line(app, arguments, [&] {
    resolve_machine(app, settings, given);
    if (settings.search && !settings.memory)
      throw UsageError("--search: needs --memory or --machine");
    if (!settings.svg.empty())
      check_output("--svg", settings.svg, reason_not_to_write(settings.svg));
    if (!settings.svg.empty()) check_not_read("--svg", settings.svg, app.remaining());
    const GivenOptions options(app.remaining(), rows);
    if (app.count("--world") == 0 && settings.machine_name.empty())
      worlds = in_file(options.file(), "world").value_or(worlds);
    else if (app.count("--world") == 0)
      worlds = std::to_string(settings.machine.ranks_per_host);
    const std::vector<int64_t> all = parse_worlds(worlds);
    if (settings.search && all.size() > 1)
      throw UsageError("--search: needs a single number of ranks in --world");
    const TrainParsing parsing{.max_world = kMaxWorld,
                               .only_plans = true,
                               .rows_fill_context = options.leave_seq_open(),
                               .other_options = names_of(app)};
    settings.on = [options, parsing](int64_t world) {
      return parse_train_options(
          options.of_plan(world), [](const std::string& wrap) { wrap_policy_of(wrap); }, parsing);
    };
    settings.train_options = [options](int64_t world) { return options.of_train(world); };
    for (const int64_t world : all)
      settings.configs.push_back(settings.on(world));
    const TrainConfig& first = settings.configs.front();
    settings.searched = options.searched(first, settings.machine.backend == "nccl");
    settings.plans_pattern = options.leave_data_open();
    settings.rows_fill_context = options.leave_seq_open() && first.data.kind != DataKind::modular;
  });
  return settings;
}

}  // namespace fsdp
