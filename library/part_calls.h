#pragma once

#include <nn/operator_call.h>

#include <algorithm>

// The values of a call on the dispatcher's stack. Before the call of an operator, its arguments are
// the last values on the stack. After the call, its results are the last values. nn/operator_call.h
// has functions on such values.
namespace fsdp {

// Returns the last `count` values on the stack: the arguments or the results of a call.
inline Values last_values(const torch::jit::Stack& stack, size_t count) {
  return {stack.end() - static_cast<int64_t>(count), stack.end()};
}

// Replaces the last values.size() values on the stack by `values`.
inline void replace_last_values(torch::jit::Stack* stack, const Values& values) {
  std::ranges::copy(values, stack->end() - static_cast<int64_t>(values.size()));
}

}  // namespace fsdp
