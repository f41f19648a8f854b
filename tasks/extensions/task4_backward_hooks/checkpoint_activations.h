#pragma once

#include <nn/module.h>

namespace fsdp {

// Extension (see "Going further" in the handout): activation checkpointing, PyTorch's checkpoint().
// From now on:
// - A call of `module` keeps its input for backward, but nothing that is made inside.
// - When the gradient of the output has arrived, forward() runs a second time, with gradients
//   recorded. Backward goes over this second run and frees what it made.
//
// The results:
// - Output and gradients are those without checkpointing, to the bit. (But if a tensor is used
//   several times inside and also outside, its gradients may be added in another order.)
// - Gradients reach the input, and the parameters of `module` and of the modules inside, in the
//   backward pass that asked for them. Each distinct parameter gets its gradient once.
//
// The second run:
// - It draws the random numbers of the first run, and leaves the generators as it found them.
// - It has the thread's settings of the first run (ThreadSettings: autocast, for example), whatever
//   they are in backward, and leaves them as it found them.
// - It leaves no cast in autocast's cache.
// - Other settings of the process must be the same as in the call.
// - Only forward() runs again. The hooks of `module` and of its input run as they do without
//   checkpointing.
//
// Calls that just run forward():
// - a call while no gradients are recorded;
// - a call of a module whose reads_parameters_in_backward() is false, because backward would not
//   gather its parameters again.
//
// Units and modules:
// - A checkpointed module that is called inside another one is a part of that one.
// - `module` may be a unit of FSDP, and a unit may lie around it.
// - A shared_ptr must hold `module`. The graph of a call keeps it alive.
// - If forward() throws in backward, the next call, or the next pass over a graph that was kept,
//   works as if this pass had not begun.
//
// Throws:
// - std::logic_error in a call if a unit of FSDP lies inside `module`, because backward would find
//   its parameters resharded;
// - in backward, if the input was changed in place.
void checkpoint_activations(Module& module);

}  // namespace fsdp
