#pragma once

#include <comm/launcher.h>
#include <config/train_config.h>
#include <data/dataset.h>
#include <prediction/prediction.h>

#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// "fsdp (hybrid, 2 replicas of 2 ranks) of small, 4 ranks over shm, text, batch 8 x 127 tokens, 100
// steps"
std::string description(const TrainConfig& config, const RankContext& context,
                        const Transports& transports);

// For text: how far the model is from one that knows only how frequent each byte is, by the last
// losses.
inline constexpr int kToldLosses = 20;
std::optional<std::string> loss_beside_entropy(const Dataset& dataset,
                                               const std::vector<double>& losses);

}  // namespace fsdp
