#pragma once

#include <data/dataset.h>
#include <launch/rank_context.h>
#include <prediction/prediction.h>
#include <strategies/strategy.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

// What a run prints before its first step and after its last one.
namespace fsdp {

// "fsdp (hybrid, 2 replicas of 2 ranks) of small, 4 ranks over shm, text, batch 8 x 127 tokens, 100
// steps"
std::string description(const TrainConfig& config, const RankContext& context,
                        const Transports& transports);

// For text: how far the model is from one that knows only how frequent each byte is, by the last
// losses.
inline constexpr int kReportedLosses = 20;
std::optional<std::string> loss_beside_entropy(const Dataset& dataset,
                                               const std::vector<double>& losses);

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
