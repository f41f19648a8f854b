#pragma once

#include <nn/module.h>

namespace fsdp {

// Extension (see "Going further" in the handout): activation checkpointing, PyTorch's checkpoint().
// From now on:
// - A call of `module` keeps its input for backward, but no tensor that is made inside the call.
// - When the gradient of the output has arrived, forward() runs a second time, with gradients
//   recorded. Backward runs through the graph of this second run and frees what the run made.
//
// The results:
// - Output and gradients are equal, to the bit, to those without checkpointing. (But if a tensor is
//   used several times inside and also outside, its gradients may be added in another order.)
// - Gradients reach the input, and the parameters of `module` and of the modules inside, in the
//   backward pass that asked for them. Each distinct parameter gets its gradient once.
//
// The second run:
// - It gets the random numbers of the first run, and leaves the generators as it found them.
// - It runs with the thread's settings of the first run (ThreadSettings: autocast, for example),
//   whatever the settings are in backward. Afterwards it restores the settings that it found.
// - It leaves no cast in autocast's cache.
// - Other settings of the process must be the same as in the call.
// - Only forward() runs again. The hooks of `module` and of its input run as they do without
//   checkpointing.
//
// These calls only run forward(), as without checkpointing:
// - a call while no gradients are recorded;
// - a call of a module whose reads_parameters_in_backward() is false, because backward would not
//   gather its parameters again.
//
// Units and modules:
// - If a checkpointed module is called inside another one, its call is a part of the outer call.
// - `module` may be a unit of FSDP, and it may lie inside a module that is a unit.
// - A shared_ptr must hold `module`. The graph of a call keeps `module` alive.
// - If forward() throws in backward, the next call, or the next pass over a graph that was kept,
//   works as if this pass had not begun.
//
// Throws:
// - std::logic_error in a call if a unit of FSDP lies inside `module`, because backward would find
//   its parameters resharded;
// - in backward, if the input was changed in place.
void checkpoint_activations(Module& module);

}  // namespace fsdp
