#pragma once

#include <nn/module.h>

namespace fsdp {

// Activation checkpointing, as PyTorch's checkpoint(use_reentrant=False) does it. From now on, a
// call of `module` keeps its input, but not the tensors that autograd saves inside it for backward.
// When backward needs the first of them, it runs forward() again, with gradients and with the state
// that the generators had in the call, so dropout draws the same; this brings them all back. Each
// lives as long as it would without checkpointing. All else stays as it is: the graph, the order in
// which gradients are added up, and the hooks of `module`, which do not run again.
// - A checkpointed module that is called inside another one is a part of that one.
// - A unit of FSDP may be `module` or lie around it. If one lies inside, a call throws
//   std::logic_error, since backward would find its parameters sharded again.
// - Backward throws std::logic_error if the input or a tensor that autograd saved was changed in
//   place, or if forward() saves other tensors than in the call.
// Throws std::invalid_argument if no shared_ptr holds `module`. The graph keeps it alive.
void checkpoint_activations(Module& module);

// Checkpoints the K-th, 2K-th, ... of the modules of `root` whose class name ends in "Block", in
// the order of registration. K = `every`, at least 1.
void checkpoint_blocks(Module& root, int every);

}  // namespace fsdp
