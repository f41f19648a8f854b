#pragma once

#include <planning/plan.h>

#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// The command line of `./fsdp plan`.
struct PlanSettings {
  Machine machine;
  std::vector<TrainConfig> configs;  // one for each number of ranks, ascending
  bool json{};
  std::string svg;                // file for the chart; empty: none
  std::optional<int64_t> memory;  // [bytes] of a rank, for --search; nothing: no search
};

// Parses the arguments, without the program's name. Throws UsageError if they are wrong. With
// --help, prints the help and exits with 0.
PlanSettings parse_plan_options(const std::vector<std::string>& arguments);

}  // namespace fsdp
