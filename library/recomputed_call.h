#pragma once

#include <nn/module.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>

namespace fsdp {

// Returns whether a call of `module` that begins now would need recomputed_call(): gradients are
// recorded, the backward pass reads parameters of the module, and no recomputed_call() is running
// its forward() for the second time.
bool needs_recomputation(const Module& module);

// Activation checkpointing of one call of a module, with the promises of checkpoint_activations().
// - In forward, recomputed_call() calls `first`, which runs forward() and returns the tensors among
//   its outputs. The graph keeps none of the tensors that forward() makes inside. recomputed_call()
//   returns the outputs, which have a new node of the graph.
// - In backward, when the gradients of the outputs have arrived, the node calls `again` with the
//   values of `inputs`, the tensors among the inputs of the call. `again` runs forward() on them
//   and returns the tensors among the outputs in the same order.
// Throws:
// - std::logic_error if a unit of FSDP lies inside `module`;
// - in backward, std::logic_error if a parameter of the module is sharded, or if the second
//   forward() has another number of outputs; c10::Error if an input was changed in place.
torch::autograd::variable_list recomputed_call(
    Module& module, const torch::autograd::variable_list& inputs,
    const std::function<torch::autograd::variable_list()>& first,
    const std::function<
        torch::autograd::variable_list(const torch::autograd::variable_list& inputs)>& again);

}  // namespace fsdp
