#pragma once

#include <functional>

namespace torch::autograd {
struct Node;
}

namespace fsdp {

// Where this pass puts the gradient of `node`: backward() adds it to .grad, autograd::grad() gives
// it to its caller. Null: of a node that only a backward() of the whole graph reaches.
struct GradientTarget {
  bool grad{}, caller{};
};
GradientTarget gradient_target(const torch::autograd::Node* node);

// Whether this thread runs a part of a backward pass. Not at its end, when everything has run.
bool in_backward();

// At the first sign of a backward pass: from now on calls `ended` when all of it has run, or
// `broken` when it has thrown, before backward() throws. On a GPU a thread of the engine may still
// hold the pass then: run_deferred_failures() calls `broken`, before anything else is done.
void on_backward_end(std::function<void()> ended, std::function<void()> broken);

// At each sign of what comes after a pass: a forward, or a call of the model's object.
void run_deferred_failures();

}  // namespace fsdp
