#pragma once

#include <plan/settings.h>

#include <nlohmann/json.hpp>

namespace fsdp {

// Returns the plan as text, in 100 columns.
std::string text_of(const Plan& plan, const TrainConfig& config, const Machine& machine);

// Returns the plan as one JSON object, with bytes and seconds.
nlohmann::ordered_json json_of(const Plan& plan, const TrainConfig& config);

// Returns "80.000 GB" or, below 1 GB, "61.900 MB".
std::string bytes_text(int64_t bytes);

// Returns an SVG chart with a bar for each plan: rank 0's peak by memory class. Its colours follow
// the reader's colour scheme.
std::string chart_of(const std::vector<Plan>& plans, const std::vector<TrainConfig>& configs);

}  // namespace fsdp
