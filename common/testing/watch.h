#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace at {
class Tensor;
}

namespace fsdp {

// The part of ./fsdp why that runs in a replayed rank. If FSDP_WATCH names a WatchPage, it writes
// down what the rank does, each time with the functions that were running: writes to the watched
// address, allocations, collectives, exceptions. In all other processes these functions do nothing.
namespace watch {

// Call it once, when the replayed rank begins.
void begin(int rank);

// TestRank calls one of these functions for each observation. If it is the one in question, the
// process ends.
void observed(const std::string& name, const nlohmann::json& value);
void observed(const std::string& name, const at::Tensor& tensor);

}  // namespace watch
}  // namespace fsdp
