#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace fsdp {

// Runs an operator that computes element by element, if some operands are parts: tensors with this
// rank's elements of a larger tensor, the whole tensor. The results are parts, and so are the
// tensors that the operator writes to.
// - If a plain operand (one that is not a part) has the sizes of the whole tensor, or can be
//   broadcast to them, the operator gets only this rank's elements of it.
// - Throws std::logic_error if two parts have different elements of their whole tensors, if a plain
//   operand fits neither the part nor the whole tensor or would fit both with different elements,
//   if autograd would record a gradient for a plain operand, or if a result has another number of
//   elements than the part.
void run_elementwise(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace fsdp
