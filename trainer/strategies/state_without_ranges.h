#pragma once

#include <optim/shard_layout.h>
#include <state/model_state.h>

#include <vector>

namespace fsdp {

// Returns the names and sizes of `parameters`, and no ranges of their state.
ModelState state_without_ranges(const std::vector<NamedParameter>& parameters);

}  // namespace fsdp
