#pragma once

#include <data/dataset.h>
#include <launch/rank_context.h>
#include <prediction/prediction.h>
#include <strategies/strategy.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

// This file has the functions that make the texts which a run prints before its first step and
// after its last one.
namespace fsdp {

// Returns the first line that a run prints, for example "fsdp (hybrid, 2 replicas of 2 ranks) of
// small, 4 ranks over shm, text, batch 8 x 127 tokens, 100 steps".
std::string description(const TrainConfig& config, const RankContext& context,
                        const Transports& transports);

// Returns the number of elements of the model's trainable parameters.
int64_t trained_numel(const ShardLayout& layout);
// Returns the size of the model as text: "5,678 parameters" or, if some are frozen, "1,234 of 5,678
// parameters are trained".
std::string size_of_model(const ShardLayout& layout);

// Returns a line for the summary that compares the mean of the last kReportedLosses of `losses`
// with the unigram entropy of the text, which is the loss of a model that knows only how frequent
// each byte is. Returns nothing if the run does not train on text or if `losses` is empty.
inline constexpr int kReportedLosses = 20;
std::optional<std::string> loss_beside_entropy(const Dataset& dataset,
                                               const std::vector<double>& losses);

// Collective; call it after the last step. Returns the last line of the JSON file: sum and hash of
// the parameters, measured and predicted bytes, and the configuration of the run.
// - `sum_before`: the sum of the parameters before the first step, added in fp64.
// - `last_step`: the collectives of the last step.
// - `traces`: used for the prediction; if it is empty, activations are not predicted.
nlohmann::ordered_json final_line(const TrainConfig& config, Strategy& strategy, Communicator& comm,
                                  double sum_before, const std::vector<Call>& last_step,
                                  const std::optional<ModelTraces>& traces,
                                  const Transports& transports);

// Returns the lines of the summary that a run prints at its end: the numbers of `final_line` as
// text for the user.
std::vector<std::string> summary_of(const nlohmann::ordered_json& final_line);

}  // namespace fsdp
