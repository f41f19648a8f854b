#pragma once

#include <nn/unit_policy.h>

#include <string>

namespace fsdp {

WrapPolicy wrap_blocks();  // chooses modules of classes whose name ends in "Block"

// Chooses the modules of one class, named without its namespace.
// The policy throws std::invalid_argument if there is no module of this class. The message lists
// the classes of the fsdp::Modules below the root, sorted:
//   "wrap policy: no module of type Blok; there are OuterBlock, ToyBlock"
WrapPolicy wrap_by_type(std::string class_name);

}  // namespace fsdp
