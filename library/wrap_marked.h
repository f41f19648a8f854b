#pragma once

#include <wrap_policy.h>

namespace fsdp {

// FSDP2's calls from the inside out. The first marks `module` as a unit of the model around it,
// which is sharded later, as a whole and with the second as .wrap. A call of `module` before that
// throws std::logic_error: nobody would reduce its gradients.
void fully_shard(Module& module);
WrapPolicy wrap_marked();

}  // namespace fsdp
