#pragma once

#include <wrap_policy.h>

#include <string>

namespace fsdp {

// What --wrap takes: auto, block, none, type:NAME or size:BYTES. Throws std::invalid_argument
// naming the text.
WrapPolicy wrap_policy_of(const std::string& text);

}  // namespace fsdp
