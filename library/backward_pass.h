#pragma once

#include <functional>

namespace torch::autograd {
struct Node;
}

namespace fsdp {

// Returns where the backward pass that this thread runs puts the gradient of `node`: backward()
// adds it to .grad, autograd::grad() returns it to its caller. Pass null to ask whether the pass is
// a backward() over the whole graph.
struct GradientTarget {
  bool grad{}, caller{};
};
GradientTarget gradient_target(const torch::autograd::Node* node);

// Returns whether this thread is running a node of a backward pass. False in the functions that run
// at the end of a pass, after all its nodes.
bool in_backward();

// Call it at the first sign of a backward pass. `ended` runs when the whole pass has run. If the
// pass throws, `broken` runs before backward() throws; or, if an engine thread of a GPU still holds
// the pass, in the next run_deferred_failures().
void on_backward_end(std::function<void()> ended, std::function<void()> broken);

// Runs each `broken` that has not run yet although its pass has thrown. Call it at the start of
// everything that can follow a backward pass: a forward, or a function of the model's object.
void run_deferred_failures();

}  // namespace fsdp
