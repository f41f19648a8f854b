#pragma once

#include <optim/state_range.h>

#include <nlohmann/json.hpp>
#include <vector>

// Writes the state of a failed rank to a file in memory, and reads it in the new rank that takes
// the place of the failed rank (hosts/handover.h).
namespace fsdp {

// Writes the state of a rank to `file`: first `run`, the state of the run except its tensors, then
// the tensors of `ranges`. Throws std::system_error if there is not enough memory.
void write_state(int file, const nlohmann::ordered_json& run,
                 const std::vector<StateRange>& ranges);

// read_run() and read_ranges() read what write_state() wrote. Call read_run() first, then
// read_ranges() with ranges of the sizes that were written. Both throw std::runtime_error if the
// file ends too early.
nlohmann::ordered_json read_run(int file);
void read_ranges(int file, const std::vector<StateRange>& ranges);

}  // namespace fsdp
