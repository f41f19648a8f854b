#pragma once

#include <optim/shard_layout.h>
#include <state/model_state.h>

#include <vector>

namespace fsdp {

// Returns a ModelState with the names and sizes of `parameters` and without ranges.
ModelState state_without_ranges(const std::vector<NamedParameter>& parameters);

}  // namespace fsdp
