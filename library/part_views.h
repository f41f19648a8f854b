#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace fsdp {

// Runs an operator, such as view(), that only rearranges the elements of a part: a tensor with this
// rank's elements of a larger tensor. The results are parts. Throws std::logic_error unless the
// elements keep their order.
void run_reordered(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Runs expand_as() of a plain tensor with a part as the second operand, which gives the sizes:
// expands the plain tensor to the sizes of the whole tensor. Throws std::logic_error if the first
// operand is a part, or if the sizes of the whole tensor are not known.
void run_expanded(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Runs slice or split_with_sizes on a result of at::cat() of parts, which consists of pieces: the
// tensors that at::cat() has joined. The results are parts. Throws std::logic_error unless each
// result consists of whole pieces.
void run_cut(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Runs at::cat() on tensors of which at least one is a part: a tensor with this rank's elements of
// a larger tensor. The result is a part that consists of pieces, the joined tensors. Throws
// std::logic_error unless every part has one dimension.
void run_joined(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace fsdp
