#pragma once

#include <nn/unit_policy.h>

#include <cstdint>

namespace fsdp {

// Extension (see "Going further" in the handout), a policy by size, as FSDP1 has one. The policy
// looks at the modules inside a module before it looks at this module. It chooses a module if the
// module's distinct parameters, without those in chosen modules below it, take at least `bytes`.
// - A tied parameter counts once, if one of its places is outside those chosen modules.
// - The parameters of a module that cannot be hooked count for the module around it.
WrapPolicy wrap_by_size(int64_t bytes);

}  // namespace fsdp
