#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace at {
class Tensor;
}

namespace fsdp {

// The part of ./fsdp why that runs in a replayed rank. If FSDP_WATCH names a WatchPage, these
// functions make the rank record there what it does: writes to the watched address, numbers read
// from tensors, allocations and frees, collectives, observations and exceptions, each with the
// functions that were running. In all other processes these functions do nothing.
namespace watch {

// Call begin() once, when the replayed rank begins.
void begin(int rank);

// TestRank calls these functions for each observation. If the WatchPage asks for this observation,
// they write the answer and end the process.
void observed(const std::string& name, const nlohmann::json& value);
void observed(const std::string& name, const at::Tensor& tensor);

}  // namespace watch
}  // namespace fsdp
