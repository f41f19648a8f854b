#pragma once

#include <nn/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Chooses the modules that become units; the root always is one. A unit must be an fsdp::Module,
// for it has to be hooked.
using WrapPolicy = std::function<std::vector<Module*>(Module& root)>;

WrapPolicy wrap_none();                           // the root alone
WrapPolicy wrap_blocks();                         // classes whose name ends in "Block"
WrapPolicy wrap_by_type(std::string class_name);  // without its namespace
WrapPolicy wrap_by_hand(std::vector<Module*> modules);

// From the leaves up: a module whose parameters outside units below it take at least `bytes`.
WrapPolicy wrap_by_size(int64_t bytes);

// From text: block, none, type:NAME, size:BYTES. Throws std::invalid_argument naming the text.
WrapPolicy parse_wrap_policy(const std::string& text);

}  // namespace fsdp
