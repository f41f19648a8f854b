#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace fsdp {

// Runs an operator that only rearranges the elements of a part, such as view(). The results are
// parts. Throws std::logic_error unless the elements keep their order.
void run_reordered(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Runs an operator that takes some elements of a part that at::cat() has made. The results are
// parts. Throws std::logic_error unless each result consists of whole pieces.
void run_cut(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Runs at::cat(). The result is a part that consists of pieces. Throws std::logic_error unless
// every part has one dimension.
void run_joined(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace fsdp
