#include <part_calls.h>
#include <part_elementwise.h>
#include <part_mark.h>
#include <part_reductions.h>
#include <part_rules.h>
#include <part_views.h>
#include <torch/library.h>

#include <stdexcept>
#include <unordered_map>

// run_with_parts() is the kernel that the dispatcher calls for every operator with an operand that
// is marked as this rank's part of a tensor (part_mark.h). Only the operators that
// part_elementwise.cpp registers have kernels of their own.
namespace fsdp {
namespace {

// The operator that the user has called, if its rule is PartRule::composed and it is running;
// otherwise null. The message of refuse_call() names it.
thread_local const c10::OperatorHandle* composed = nullptr;

struct Composed {
  explicit Composed(const c10::OperatorHandle& op) : before(composed) {
    if (composed == nullptr) composed = &op;
  }
  ~Composed() { composed = before; }
  Composed(const Composed&) = delete;
  const c10::OperatorHandle* before;
};

PartRule known_rule(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const c10::FunctionSchema*, PartRule> rules;
  const auto found = rules.find(&op.schema());
  return found != rules.end() ? found->second : rules[&op.schema()] = part_rule(op);
}

// Returns the description of the first operand that is marked.
PartDescription first_part(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  for (const at::Tensor& tensor : tensors_in(last_values(stack, op.schema().arguments().size())))
    if (is_part(tensor)) return description_of(tensor);
  throw std::logic_error("internal error: " + op.schema().name() + " has no operand with a mark");
}

[[noreturn]] void refuse_call(const c10::OperatorHandle& op, const PartOf& of) {
  refuse_operator(composed != nullptr ? *composed : op, of);
}

// Runs an operator that calls other operators. If torch finds its operands unfit, for example
// because narrow() would read more rows than the part has, the error of torch would have numbers of
// the part, so this function throws that of refuse_call() instead.
void run_composed(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
  const PartDescription of = first_part(op, *stack);
  const Composed outermost(op);
  try {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kPart), stack);
  } catch (const c10::Error&) {
    refuse_call(op, *of);
  }
}

void run_with_parts(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  switch (known_rule(op)) {
    case PartRule::elementwise:
      return run_elementwise(op, stack);
    case PartRule::reordered:
      return run_reordered(op, stack);
    case PartRule::cut:
      return run_cut(op, stack);
    case PartRule::joined:
      return run_joined(op, stack);
    case PartRule::reduction:
      return run_reduction(op, stack);
    case PartRule::plain: {
      const PartsAsTensors inside;
      return op.callBoxed(stack);
    }
    case PartRule::expanded:
      return run_expanded(op, stack);
    case PartRule::composed:
      return run_composed(op, keys, stack);
    case PartRule::refused:
      refuse_call(op, *first_part(op, *stack));
  }
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_with_parts>());
}

}  // namespace
}  // namespace fsdp
