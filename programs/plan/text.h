#pragma once

#include <plan/settings.h>

#include <nlohmann/json.hpp>

namespace fsdp {

// Returns the plan as text, in 100 columns, and the command that trains it.
std::string text_of(const Plan& plan, const TrainConfig& config, const PlanSettings& settings);

// Returns the plan as one JSON object, with bytes and seconds.
nlohmann::ordered_json json_of(const Plan& plan, const TrainConfig& config);

// Returns the first lines of an answer: the model, the ranks and their memory, the rows and their
// tokens.
std::string first_lines(const Plan& plan, const TrainConfig& config, const PlanSettings& settings);

// The line of an answer that names the bytes that no plan counts.
extern const char* const kNotCounted;

}  // namespace fsdp
