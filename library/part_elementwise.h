#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace fsdp {

// Runs an operator that computes element by element, with parts among its operands. The results are
// parts, and so are the tensors that it writes to.
// - A plain operand with the sizes of the whole tensor, or that can be broadcast to them, is cut:
//   the operator gets the elements of this rank.
// - Throws std::logic_error if two parts have different elements of their tensors, if a plain
//   operand fits neither the part nor the whole tensor or would fit both with different elements,
//   if autograd would record a gradient for a plain operand, or if a result has another number of
//   elements than the part.
void run_elementwise(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace fsdp
