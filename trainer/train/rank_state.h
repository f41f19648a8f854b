#pragma once

#include <optim/state_range.h>

#include <nlohmann/json.hpp>
#include <vector>

// Writes and reads the state of a rank in a file in memory, for the rank that takes its place
// (hosts/handover.h).
namespace fsdp {

// Writes the state of a rank: `run`, the state of the run except its tensors, then the ranges.
// Throws std::system_error if there is not enough memory.
void write_state(int file, const nlohmann::ordered_json& run,
                 const std::vector<StateRange>& ranges);

// Read what write_state() wrote: call read_run() first, then read_ranges() with ranges of equal
// sizes. They throw std::runtime_error if the file ends too early.
nlohmann::ordered_json read_run(int file);
void read_ranges(int file, const std::vector<StateRange>& ranges);

}  // namespace fsdp
