#pragma once

#include <nn/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Chooses the modules below `root` that become units, each once; the root always is one. A unit
// must be an fsdp::Module, for it has to be hooked.
using WrapPolicy = std::function<std::vector<Module*>(Module& root)>;

WrapPolicy wrap_none();    // the root alone
WrapPolicy wrap_blocks();  // classes whose name ends in "Block"
WrapPolicy wrap_by_hand(std::vector<Module*> modules);

// The modules of one class, named without its namespace. If there are none, the policy throws
// std::invalid_argument with the classes of the fsdp::Modules below the root, sorted: "wrap policy:
// no module of type Blok; there are OuterBlock, ToyBlock".
WrapPolicy wrap_by_type(std::string class_name);

// From the leaves up: a module whose distinct parameters outside units below it take at least
// `bytes`. A tied parameter counts once, if one of its places is outside those units. What lies in
// a module that cannot be hooked counts for the module around it.
WrapPolicy wrap_by_size(int64_t bytes);

}  // namespace fsdp
