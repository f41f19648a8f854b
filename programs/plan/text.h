#pragma once

#include <plan/settings.h>

#include <nlohmann/json.hpp>

namespace fsdp {

// One plan in words, in 100 columns.
std::string text_of(const Plan& plan, const TrainConfig& config, const Machine& machine);

nlohmann::ordered_json json_of(const Plan& plan, const TrainConfig& config);

// "80.0 GB", "61.9 MB"
std::string bytes_text(int64_t bytes);

// Peaks of the plans by class, as bars of a chart that follows the reader's colour scheme.
std::string chart_of(const std::vector<Plan>& plans, const std::vector<TrainConfig>& configs);

}  // namespace fsdp
