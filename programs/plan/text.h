#pragma once

#include <plan/settings.h>

#include <nlohmann/json.hpp>

namespace fsdp {

// Returns the plan as text, in lines of at most 100 columns, and the command of ./fsdp train that
// runs it.
std::string text_of(const Plan& plan, const TrainConfig& config, const PlanSettings& settings);

// Returns the plan as one JSON object, with sizes in bytes and times in seconds.
nlohmann::ordered_json json_of(const Plan& plan, const TrainConfig& config);

// Returns the lines with which the output of ./fsdp plan begins: the model, the ranks and their
// memory, the rows and their tokens.
std::string first_lines(const Plan& plan, const TrainConfig& config, const PlanSettings& settings);

// The line of the output of ./fsdp plan that lists what no plan counts, such as the CUDA context.
extern const char* const kNotCounted;

}  // namespace fsdp
