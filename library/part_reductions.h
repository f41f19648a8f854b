#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace fsdp {

// Collective: all ranks between which the tensor is sharded call it. Runs a reduction, such as
// norm(). A part is an operand with this rank's elements of a whole tensor. Gathers the whole
// tensor of each part, and runs torch's operator on the whole tensors. So the result has the bits
// of one process, and autograd differentiates it.
// - Without autograd, all(), any(), max() and min() of all elements gather only one number of each
//   rank.
// - full_tensor() in full_tensor.h gathers, and runs no operator.
// Throws: std::logic_error if a whole tensor can't be gathered, if the operator would write to a
// part, or if a plain operand has as many elements as the part but not the sizes of the whole
// tensor, so that it is not clear whether it is meant to be a part.
void run_reduction(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace fsdp
