#pragma once

#include <nn/unit_policy.h>

#include <string>

namespace fsdp {

WrapPolicy wrap_blocks();  // modules of classes whose name ends in "Block"

// The modules of one class, named without its namespace. If there are none, the policy throws
// std::invalid_argument with the classes of the fsdp::Modules below the root, sorted: "wrap policy:
// no module of type Blok; there are OuterBlock, ToyBlock".
WrapPolicy wrap_by_type(std::string class_name);

}  // namespace fsdp
