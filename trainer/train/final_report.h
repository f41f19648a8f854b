#pragma once

#include <prediction/model_trace.h>
#include <prediction/prediction.h>
#include <strategies/strategy.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// The last line of the JSON file: the parameters' sums and hash, what was measured beside what was
// predicted, and how the run was configured. All ranks call it together, after the last step.
// `sum_before`: of the parameters before the first step, added in fp64. `last_step`: the
// collectives of the last one.
nlohmann::ordered_json final_line(const TrainConfig& config, Strategy& strategy, Communicator& comm,
                                  double sum_before, const std::vector<Call>& last_step,
                                  const std::optional<ModelTraces>& traces,
                                  const Transports& transports);

// What the final line tells, for people.
std::vector<std::string> summary_of(const nlohmann::ordered_json& final_line);

}  // namespace fsdp
