#pragma once

#include <wrap_policy.h>

namespace fsdp {

// FSDP2's way to choose units, from the inside out.
// - Call fully_shard(module) on each module that is to be a unit. It marks the module and shards
//   nothing.
// - Then shard the model with .wrap = wrap_marked(), which selects the marked modules below the
//   root.
// Until the model is sharded, calling a marked module throws std::logic_error, because its
// gradients would not be reduced.
void fully_shard(Module& module);
WrapPolicy wrap_marked();

}  // namespace fsdp
