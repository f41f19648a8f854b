#pragma once

#include <planning/plan.h>

#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// The command line of `./fsdp plan`.
struct PlanSettings {
  Machine machine;
  std::vector<TrainConfig> configs;  // by number of ranks
  bool json{};
  std::string svg;                // file of a chart; empty: none
  std::optional<int64_t> memory;  // [bytes] of a rank, for a search
};

// Throws UsageError. Prints the help and exits with 0 if asked for it.
PlanSettings parse_plan_options(const std::vector<std::string>& arguments);

}  // namespace fsdp
