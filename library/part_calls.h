#pragma once

#include <nn/operator_call.h>

#include <algorithm>

// This file has functions on the values of an operator's call that are on the dispatcher's stack.
// Before the call, the operator's arguments are the last values on the stack. After the call, the
// operator's results are the last values. nn/operator_call.h has more functions on such values.
namespace fsdp {

// Returns the last `count` values on the dispatcher's stack: the arguments or the results of the
// call of an operator.
inline Values last_values(const torch::jit::Stack& stack, size_t count) {
  return {stack.end() - static_cast<int64_t>(count), stack.end()};
}

// Replaces the last values.size() values on the dispatcher's stack by `values`.
inline void replace_last_values(torch::jit::Stack* stack, const Values& values) {
  std::ranges::copy(values, stack->end() - static_cast<int64_t>(values.size()));
}

}  // namespace fsdp
