#pragma once

#include <wrap_policy.h>

#include <string>

namespace fsdp {

// The blocks that wrap_blocks() chooses, and each other module whose unit takes at least as many
// bytes as that of the largest block: an embedding, a head. Such a module lies neither inside nor
// around another unit but the root; of two that would, the inner one is chosen. A parameter that is
// tied to a place outside the module does not count. Without blocks: the root alone.
WrapPolicy wrap_auto();

// What --wrap takes: auto, block, none, type:NAME or size:BYTES. Throws std::invalid_argument
// naming the text.
WrapPolicy wrap_policy_of(const std::string& text);

}  // namespace fsdp
