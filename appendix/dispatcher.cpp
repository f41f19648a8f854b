// Shows that a fallback on one dispatch key sees every operator that the thread calls, but not the
// operators that such an operator calls itself.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <iostream>

// Calls `op` and prints its name. Before op.callBoxed(), the arguments of the operator are the last
// values on the stack; after it, the results are in their place.
static void print_and_call(const c10::OperatorHandle& op, c10::DispatchKeySet,
                           torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard not_inside(c10::DispatchKey::DeferredInit);
  const size_t arguments = op.schema().arguments().size();
  op.callBoxed(*stack);
  std::cout << "  " << op.operator_name().name << ", " << arguments << " arguments -> "
            << stack->back().tagKind() << '\n';
}

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&print_and_call>());
}

int main() {
  std::cout << "keys of a tensor: " << c10::toString(torch::ones({1}).key_set()) << '\n';
  const at::Tensor x = torch::ones({2, 4});
  const c10::impl::IncludeDispatchKeyGuard redirect(c10::DispatchKey::DeferredInit);
  std::cout << "the constructor of Linear(4, 3):\n";
  torch::nn::Linear linear(4, 3);
  std::cout << "its forward:\n";
  const at::Tensor y = linear(x);
  std::cout << "torch::linear:\n";
  torch::linear(x, linear->weight, linear->bias);
  std::cout << "set_data:\n";
  linear->weight.set_data(linear->weight.variable_data());
  std::cout << "requires_grad_, sizes, a copied handle:\n";
  linear->weight.requires_grad_(false);
  at::Tensor handle;
  handle = y;
  std::cout << "  " << handle.sizes() << '\n';
}
