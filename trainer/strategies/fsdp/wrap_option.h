#pragma once

#include <wrap_policy.h>

#include <string>

namespace fsdp {

// Returns the policy of --wrap auto, which chooses as units
// - the blocks that wrap_blocks() chooses;
// - each other module whose unit has at least as many bytes as the largest block's unit, for
//   example an embedding or a head. A parameter of the module that is tied to a parameter outside
//   the module does not count. Such a module lies neither inside nor around another unit, except
//   the root: if one candidate lies inside another one, the inner one is chosen.
// If the model has no blocks, only the root is a unit.
WrapPolicy wrap_auto();

// Returns the policy for the argument of --wrap: auto, block, none, type:NAME or size:BYTES. Throws
// std::invalid_argument, which names `text`, for any other argument.
WrapPolicy wrap_policy_of(const std::string& text);

}  // namespace fsdp
