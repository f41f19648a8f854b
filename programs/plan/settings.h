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
  std::string svg;                // file for the chart; empty: none
  std::optional<int64_t> memory;  // [bytes] memory of a rank; nothing: not given
  bool search{};  // --search; then `configs` has one element, and `memory` has a value
  // The settings that a search varies: those that the command line and --config leave open.
  Searched searched;
  bool rows_fill_context{};  // --seq is not given: rows are as long as the model's context
  bool plans_pattern{};      // no option sets the data: the plan is for --data pattern

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
