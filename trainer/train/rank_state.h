#pragma once

#include <optim/state_range.h>

#include <nlohmann/json.hpp>
#include <vector>

// The state of a rank in a file in memory, for the rank that takes its place (hosts/handover.h).
namespace fsdp {

// Writes the state of a rank: what the run has come to beside the tensors, then the ranges. Throws
// std::system_error if there is no memory for it.
void write_state(int file, const nlohmann::ordered_json& run,
                 const std::vector<StateRange>& ranges);

// Reads what write_state() wrote: first read_run(), then read_ranges(), into ranges of the same
// sizes. They throw std::runtime_error if the file ends before.
nlohmann::ordered_json read_run(int file);
void read_ranges(int file, const std::vector<StateRange>& ranges);

}  // namespace fsdp
