#pragma once

#include <config/train_config.h>
#include <optim/state_range.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

// A run that goes on when a host was lost (hosts/handover.h).
namespace fsdp {

// The settings by which so many ranks go on with the parts of `config`, and with the bits of their
// sum. Nothing if they can't.
std::optional<TrainConfig> with_ranks(TrainConfig config, int ranks);

// How many of so many ranks can.
int ranks_that_go_on(const TrainConfig& config, int ranks);

// Writes the state of a rank: what the run has come to besides, then the ranges. Throws
// std::system_error if there is no memory for it.
void write_state(int file, const nlohmann::ordered_json& run,
                 const std::vector<StateRange>& ranges);
// Reads the one, then the other: into ranges of the same sizes. Throws std::runtime_error if they
// are not the same.
nlohmann::ordered_json read_run(int file);
void read_ranges(int file, const std::vector<StateRange>& ranges);

}  // namespace fsdp
