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
  std::string machine_name;          // the value of --machine; empty: not given
  std::vector<TrainConfig> configs;  // the runs to plan, by ascending number of ranks
  bool json{};
  std::string svg;                // path of the file that gets the chart; empty: none
  std::optional<int64_t> memory;  // [bytes] memory of a rank; no value: not given
  // Says whether --search is given. If it is, `configs` has one element, and `memory` has a value.
  bool search{};
  // The settings that a search varies: those that the command line and --config leave open.
  Searched searched;
  // true: --seq is not given, so the rows are as long as the model's context.
  bool rows_fill_context{};
  // true: no option sets the training data, so the plan is for --data pattern.
  bool plans_pattern{};

  // Returns the run on another number of ranks, `world`. Throws UsageError if the other options do
  // not allow this number.
  std::function<TrainConfig(int64_t world)> on;
  // Returns the options of ./fsdp train for the run on `world` ranks, without --world. It has
  // --data and --steps only if the command line has them.
  std::function<std::vector<std::string>(int64_t world)> train_options;
};

// Parses the arguments, without the program's name. Throws UsageError if they are wrong. With
// --help, prints the help and exits with 0.
PlanSettings parse_plan_options(const std::vector<std::string>& arguments);

}  // namespace fsdp
