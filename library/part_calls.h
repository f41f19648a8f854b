#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

// The values of a call of an operator, as the dispatcher passes them to a kernel for any operator:
// the arguments are the last values on a stack, and afterwards the results are.
namespace fsdp {

// Returns the last `count` values on the stack: the arguments or the results of a call.
inline std::vector<c10::IValue> last_values(const torch::jit::Stack& stack, size_t count) {
  return {stack.end() - static_cast<int64_t>(count), stack.end()};
}

// Calls body(tensor) for a tensor, or for each tensor of a list.
inline void for_each_tensor(const c10::IValue& value, const auto& body) {
  if (value.isTensor()) body(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector())
      body(tensor);
  if (value.isOptionalTensorList())
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) body(*tensor);
}

// Returns the tensors among the arguments of a call, for each argument.
inline std::vector<std::vector<at::Tensor>> tensors_by_argument(
    const std::vector<c10::IValue>& arguments) {
  std::vector<std::vector<at::Tensor>> tensors(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i)
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) { tensors[i].push_back(tensor); });
  return tensors;
}

// Puts other tensors in the place of argument `i`, a tensor or a list of tensors.
inline void replace_argument(torch::jit::Stack* stack, const c10::FunctionSchema& schema, size_t i,
                             const std::vector<at::Tensor>& tensors) {
  c10::IValue& argument = (*stack)[stack->size() - schema.arguments().size() + i];
  argument = argument.isTensor() ? c10::IValue(tensors.front()) : c10::IValue(tensors);
}

}  // namespace fsdp
