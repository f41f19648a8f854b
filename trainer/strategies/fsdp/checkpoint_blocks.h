#pragma once

#include <nn/module.h>

namespace fsdp {

// Checkpoints the activations of the K-th, 2K-th, ... of the modules of `root` whose class name
// ends in "Block", in the order of registration. K = `every`, at least 1.
void checkpoint_blocks(Module& root, int every);

}  // namespace fsdp
