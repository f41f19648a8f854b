#include <command_line/command_line.h>
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

// "80GB", "312T": a number and a power of ten.
double parse_amount(const std::string& option, const std::string& text, const std::string& unit) {
  static const std::map<std::string, double> kPowers{{"", 1},    {"k", 1e3},  {"M", 1e6},
                                                     {"G", 1e9}, {"T", 1e12}, {"P", 1e15}};
  std::smatch match;
  if (!std::regex_match(text, match, std::regex("([0-9.]{1,20})([kMGTP]?)" + unit)))
    throw UsageError(option + " " + text + ": takes a number such as 80G" + unit);
  return parse_number(option, match[1], positive_up_to(1e18)) * kPowers.at(match[2]);
}

Link parse_link_of(const std::string& option, const std::string& text) {
  try {
    return parse_link(text);
  } catch (const std::invalid_argument& error) {
    throw UsageError(option + ": " + error.what());
  }
}

// "64", or "8..4096": with each double.
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

}  // namespace

PlanSettings parse_plan_options(const std::vector<std::string>& arguments) {
  PlanSettings settings;
  std::string worlds{"1"}, within, between, flops, memory;
  std::optional<int64_t> rows;
  bool search{};
  CLI::App app(
      "Says what a step of ./fsdp train would cost on each of W ranks, without ranks and "
      "without the model's memory. Takes the options of train too; --mode is fsdp, --data "
      "pattern and --steps 3 unless given.",
      "fsdp plan");
  app.allow_extras();
  app.add_option("--world", worlds, "ranks: W, or A..B for A, 2A, 4A, ... (default 1)");
  add_number(app, "--rows", rows, NumberRange<int64_t>{1, kMany},
             "rows of each rank, in place of --batch");
  add_number(app, "--gpus-per-host", settings.machine.ranks_per_host,
             NumberRange<int64_t>{1, kMaxWorld}, "ranks of a host (default 8)");
  app.add_option("--intra", within, "links within a host: latency and bandwidth, 5us,300GB/s");
  app.add_option("--inter", between, "links between hosts: 20us,25GB/s");
  app.add_option("--flops", flops, "operations that a rank computes per second: 312T");
  app.add_option("--backend", settings.machine.backend,
                 "whose buffers are counted: shm, gloo or nccl (default nccl)")
      ->check(CLI::IsMember({"shm", "gloo", "nccl"}));
  app.add_flag("--search", search, "which strategy, recomputation and limit fit into --memory");
  app.add_option("--memory", memory, "of a rank: 80GB")->needs("--search");
  app.add_option("--svg", settings.svg, "write a chart of the peaks by number of ranks");
  app.add_flag("--json", settings.json, "print one line of JSON for each plan");
  parse_command_line(app, arguments, [&] {
    if (!within.empty()) settings.machine.within = parse_link_of("--intra", within);
    if (!between.empty()) settings.machine.between = parse_link_of("--inter", between);
    if (!flops.empty()) settings.machine.flops = parse_amount("--flops", flops, "");
    if (search && memory.empty()) throw UsageError("--search: needs --memory");
    if (search) settings.memory = std::llround(parse_amount("--memory", memory, "B"));
    const std::vector<std::string> others = app.remaining();
    if (rows && given(others, "--batch")) throw UsageError("--rows: takes the place of --batch");
    const std::vector<int64_t> all = parse_worlds(worlds);
    if (search && all.size() > 1) throw UsageError("--search: takes one --world");
    for (const int64_t world : all) {
      std::vector<std::string> options = others;
      const auto add = [&](const std::string& name, const std::string& value) {
        if (!given(others, name)) options.insert(options.end(), {name, value});
      };
      add("--mode", "fsdp");
      if (!given(others, "--recipe")) add("--data", "pattern");
      add("--steps", "3");
      add("--world", std::to_string(world));
      if (rows) add("--batch", std::to_string(*rows * world));
      settings.configs.push_back(parse_train_options(
          options, [](const std::string& wrap) { wrap_policy_of(wrap); }, kMaxWorld));
    }
  });
  return settings;
}

}  // namespace fsdp
