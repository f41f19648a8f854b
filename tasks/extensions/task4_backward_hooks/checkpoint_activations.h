#pragma once

#include <nn/module.h>

namespace fsdp {

// Extension (see "Going further" in the handout): activation checkpointing, PyTorch's checkpoint().
// From now on, a call of `module` keeps its input for backward, but nothing that is made inside.
// When the gradient of the output has arrived, forward() runs a second time, with gradients
// recorded. Backward goes over this second run and frees what it made.
// - Output and gradients are those without checkpointing, to the bit. (But if a tensor is used
//   several times inside and also outside, its gradients may be added in another order.)
// - The second run draws the numbers of the first, and leaves the generators as it found them.
// - The second run has the thread's settings of the first (ThreadSettings: autocast, for one),
//   whatever they are in backward, and leaves them as it found them. It leaves no cast in
//   autocast's cache. Other settings of the process must be those of the call.
// - Gradients reach the input, and the parameters of `module` and of the modules inside, in the
//   backward pass that asked for them. Each distinct parameter gets its gradient once.
// - Only forward() runs again. The hooks of `module` and of its input run as without.
// - A call while no gradients are recorded just runs forward(). So does one of a module whose
//   reads_parameters_in_backward() is false, because nothing would gather its parameters again.
// - A checkpointed module that is called inside another one is a part of that one.
// - A unit of FSDP may be `module` or lie around it. If one lies inside, a call throws
//   std::logic_error, because backward would find its parameters resharded.
// - If forward() throws in backward, the next call, or the next pass over a graph that was kept,
//   works as if this pass had not begun. Backward throws if the input was changed in place.
// A shared_ptr must hold `module`; the graph of a call keeps it alive.
void checkpoint_activations(Module& module);

}  // namespace fsdp
