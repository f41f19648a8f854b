#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace fsdp {

// Collective, on all ranks that have parts of the tensor. Runs a reduction, such as norm(), of the
// whole tensors of its operands: gathers them, and runs torch's operator on them. So the result has
// the bits of one process, and autograd differentiates it.
// - Without autograd, all(), any(), max() and min() of all elements gather one number of each rank.
// - full_tensor.h has the collective alone.
// Throws: std::logic_error if a whole tensor can't be gathered, or if a plain operand has as many
// elements as the part, so that it is not clear whether it is meant to be a part.
void run_reduction(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace fsdp
