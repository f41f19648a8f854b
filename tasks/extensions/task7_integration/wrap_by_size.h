#pragma once

#include <nn/unit_policy.h>

#include <cstdint>

namespace fsdp {

// Extension (see "Going further" in the handout), a size-based policy as FSDP1 has it. From the
// leaves up, it chooses each module whose distinct parameters outside units below it take at least
// `bytes`.
// - A tied parameter counts once, if one of its places is outside those units.
// - Parameters in a module that cannot be hooked count for the module around it.
WrapPolicy wrap_by_size(int64_t bytes);

}  // namespace fsdp
