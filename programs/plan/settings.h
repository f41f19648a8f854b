#pragma once

#include <planning/plan.h>
#include <planning/search.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// The command line of `./fsdp plan`.
struct PlanSettings {
  Machine machine;
  std::string machine_name;          // of --machine; empty: not given
  std::vector<TrainConfig> configs;  // one for each number of ranks, ascending
  bool json{};
  std::string svg;                // file for the chart; empty: none
  std::optional<int64_t> memory;  // [bytes] of a rank; nothing: not given
  bool search{};                  // then there is one config, and `memory`
  Searched searched;              // the settings that the command line and --config leave open
  bool rows_fill_context{};       // --seq is not given: rows have the model's context
  bool plans_pattern{};           // no option names data: the plan is that of --data pattern

  // Returns the config on another number of ranks. Throws UsageError if the other options do not
  // allow this number.
  std::function<TrainConfig(int64_t world)> on;
  // Returns the options of train for this run, without --world, --data and --steps if the command
  // line has none of them.
  std::function<std::vector<std::string>(int64_t world)> train_options;
};

// Parses the arguments, without the program's name. Throws UsageError if they are wrong. With
// --help, prints the help and exits with 0.
PlanSettings parse_plan_options(const std::vector<std::string>& arguments);

}  // namespace fsdp
