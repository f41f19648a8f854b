#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <command_line/config_file.h>
#include <command_line/usage.h>
#include <options/groups.h>
#include <options/options.h>
#include <plan/settings.h>
#include <strategies/fsdp/wrap_option.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>

namespace fsdp {
namespace {

constexpr int kMaxWorld = 1 << 16;

// Parses a number with a power of ten and the unit: "80GB", "312T".
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

// Parses one number, "64", or a range that doubles: "8..64" is 8, 16, 32, 64.
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

// Returns the options of a run on `world` ranks: `options`, which are those of the command line,
// and the plan's own defaults for options that neither the command line nor the file sets.
std::vector<std::string> options_on(int64_t world, std::vector<std::string> options,
                                    const std::vector<ConfigLine>& file,
                                    std::optional<int64_t> rows) {
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!given(options, name) && !in_file(file, name.substr(2)))
      options.insert(options.end(), {name, value});
  };
  add("--mode", "fsdp");
  const auto says = [&](const std::string& name) {
    return given(options, "--" + name) || in_file(file, name);
  };
  if (!says("recipe") && !says("text") && !says("tokens")) add("--data", "pattern");
  add("--steps", "3");
  options.insert(options.end(), {"--world", std::to_string(world)});
  if (rows) options.insert(options.end(), {"--batch", std::to_string(*rows * world)});
  // The file may describe a run on another number of ranks. If `world` does not divide the file's
  // number of microbatches, each rank computes one microbatch.
  const auto microbatches = in_file(file, "microbatches");
  if (microbatches && !given(options, "--microbatches") &&
      parse_number<int64_t>("--microbatches", *microbatches, {1, kMaxMicrobatches}) % world != 0)
    options.insert(options.end(), {"--microbatches", std::to_string(world)});
  return options;
}

// Returns the names of the options of plan.
std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  return names;
}

}  // namespace

PlanSettings parse_plan_options(const std::vector<std::string>& arguments) {
  PlanSettings settings;
  std::string worlds{"1"}, within, between, flops, memory;
  std::optional<int64_t> rows;
  bool search{};
  CLI::App app(
      "Predicts what a step of ./fsdp train costs on each of W ranks, without starting ranks and "
      "without the model's memory. Takes the options of train too, also from --config, the "
      "run.toml of a run. Unless they are given, --mode is fsdp, --data pattern and --steps 3.",
      "fsdp plan");
  app.allow_extras();
  app.add_option("--world", worlds, "ranks: W, or A..B for A, 2A, 4A, ... (default 1)");
  add_number(app, "--rows", rows, NumberRange<int64_t>{1, kMany},
             "batch rows of each rank, in place of --batch");
  add_number(app, "--gpus-per-host", settings.machine.ranks_per_host,
             NumberRange<int64_t>{1, kMaxWorld}, "ranks of a host (default 8)");
  app.add_option("--intra", within, "links within a host: latency and bandwidth, 5us,300GB/s");
  app.add_option("--inter", between, "links between hosts: 20us,25GB/s");
  app.add_option("--flops", flops, "operations that a rank computes per second: 312T");
  add_choice(app, "--backend", settings.machine.backend, {"shm", "gloo", "nccl"},
             "the backend whose buffers are counted: shm, gloo or nccl (default nccl)");
  app.add_flag("--search", search,
               "find which strategy, recomputation and --limit fit into --memory");
  app.add_option("--memory", memory, "memory of a rank, with --search: 80GB");
  app.add_option("--svg", settings.svg, "write a chart of the peaks by number of ranks");
  app.add_flag("--json", settings.json, "print one line of JSON for each plan");
  parse_command_line(app, arguments, [&] {
    if (!within.empty()) settings.machine.within = parse_link_of("--intra", within);
    if (!between.empty()) settings.machine.between = parse_link_of("--inter", between);
    if (!flops.empty()) settings.machine.flops = parse_amount("--flops", flops, "");
    if (!search && !memory.empty()) throw UsageError("--memory: needs --search");
    if (search && memory.empty()) throw UsageError("--search: needs --memory");
    if (search) settings.memory = std::llround(parse_amount("--memory", memory, "B"));
    if (!settings.svg.empty())
      check_output("--svg", settings.svg, reason_not_to_write(settings.svg));
    const std::vector<std::string> others = app.remaining();
    if (rows && given(others, "--batch"))
      throw UsageError("--rows and --batch: give only one of them");
    const std::vector<ConfigLine> file = config_among(others);
    if (app.count("--world") == 0) worlds = in_file(file, "world").value_or(worlds);
    const std::vector<int64_t> all = parse_worlds(worlds);
    if (search && all.size() > 1)
      throw UsageError("--search: needs a single number of ranks in --world");
    for (const int64_t world : all) {
      settings.configs.push_back(parse_train_options(
          options_on(world, others, file, rows),
          [](const std::string& wrap) { wrap_policy_of(wrap); },
          {.max_world = kMaxWorld, .only_plans = true, .other_options = names_of(app)}));
    }
  });
  return settings;
}

}  // namespace fsdp
