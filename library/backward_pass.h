#pragma once

#include <functional>

namespace torch::autograd {
struct Node;
}

namespace fsdp {

// gradient_target() says where the backward pass that this thread runs puts the gradient of `node`.
// - `grad`: the pass adds it to .grad, as backward() does.
// - `caller`: the pass returns it to its caller, as autograd::grad() does.
// For a null `node`, `grad` is true if the pass is a backward() over the whole graph, which has no
// list of inputs.
struct GradientTarget {
  bool grad{}, caller{};
};
GradientTarget gradient_target(const torch::autograd::Node* node);

// Returns whether this thread is running a node of a backward pass. Returns false in the callbacks
// that the engine runs at the end of a pass, after all its nodes.
bool in_backward();

// Call on_backward_end() in a backward pass, once, in the first hook that notices the pass. When
// the whole pass has run, `ended` runs. If the pass throws, `broken` runs before backward() throws;
// but if a thread of the engine (as on a GPU) still holds the pass then, `broken` runs in the next
// run_deferred_failures().
void on_backward_end(std::function<void()> ended, std::function<void()> broken);

// Runs each function `broken` of on_backward_end() whose pass has thrown and that has not run yet.
// Call run_deferred_failures() at the start of everything that can follow a backward pass: a
// forward, or a function of the model's object.
void run_deferred_failures();

}  // namespace fsdp
