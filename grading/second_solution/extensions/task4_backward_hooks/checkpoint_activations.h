#pragma once

#include <nn/module.h>

namespace fsdp {

// The contract is in tasks/. Here autograd keeps a placeholder for each tensor that it would save
// in a call, as with PyTorch's checkpoint(use_reentrant=False), and the graph is that without
// checkpointing. The first placeholder that is read lets forward() run again, which fills them all.
void checkpoint_activations(Module& module);

}  // namespace fsdp
