#include <ATen/Operators.h>
#include <part_mark.h>
#include <part_rules.h>
#include <this_ranks_part.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace fsdp {
namespace {

using Description = c10::intrusive_ptr<PartOf>;

// A dispatch key that no backend uses, and that the dispatcher looks at before all others.
constexpr auto kPart = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

// Gives access to TensorImpl::key_set_, which is protected.
struct Keys : c10::TensorImpl {
  static c10::DispatchKeySet& of(const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->*(&Keys::key_set_);
  }
};

bool is_described(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->get_backend_meta() != nullptr;
}

// A view that was made while PartsAsTensors lived has a mark without a description.
Description description_of(c10::TensorImpl* part) {
  if (part->get_backend_meta() == nullptr) return part_of("of this model", /*is_gradient=*/false);
  return c10::static_intrusive_pointer_cast<PartOf>(part->get_backend_meta_intrusive_ptr());
}
Description description_of(const at::Tensor& part) {
  return description_of(part.unsafeGetTensorImpl());
}

Description of_result(const Description& operand) {
  return operand->of_result ? operand->of_result : operand;
}

void mark(const at::Tensor& tensor, const Description& of) {
  if (!tensor.defined() || (is_part(tensor) && is_described(tensor))) return;
  Keys::of(tensor) = Keys::of(tensor).add(kPart);
  tensor.unsafeGetTensorImpl()->set_backend_meta(of);
}

// Marks `tensor`, to which an operator has written in place. If `tensor` is a view, also marks its
// base.
void mark_written(const at::Tensor& tensor, const Description& of) {
  if (is_part(tensor)) return;
  mark(tensor, of);
  if (tensor.is_view()) mark(at::TensorBase(tensor._base()), of);
}

// The operands of one call of an operator, which must outlive this object.
class Operands {
 public:
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (is_part(tensor)) {
      if (part_ == nullptr) part_ = tensor.unsafeGetTensorImpl();
      numel_ = tensor.numel();
    } else if (tensor.numel() != 1) {
      other_ = tensor.numel();
    }
  }
  template <class Other>
  void add(const Other&) {}

  bool has_part() const { return part_ != nullptr; }
  Description of() const { return description_of(part_); }
  // Throws std::logic_error if a part would be computed together with another number of elements.
  void check(const char* op) const {
    if (has_part() && other_ >= 0 && other_ != numel_)
      refuse_numel(op, *of(), numel_, "another operand", other_);
  }
  void mark_result(const char* op, const at::Tensor& result) const {
    if (!has_part() || !result.defined()) return;
    if (result.numel() != numel_) refuse_numel(op, *of(), numel_, "the result", result.numel());
    mark(result, of_result(of()));
  }
  void mark_output(const at::Tensor& output) const {
    if (has_part() && output.defined() && !is_part(output)) mark_written(output, of_result(of()));
  }

 private:
  c10::TensorImpl* part_{};      // the first operand that is a part
  int64_t numel_{}, other_{-1};  // of a part; of another operand, unless it has one element
};

// The kernel for marked tensors of an operator that computes element by element. The fallback
// run_with_parts() would work too, but takes 20 times as long.
template <class Op, class Schema = typename Op::schema>
struct Elementwise;
template <class Op, class Result, class... Arguments>
struct Elementwise<Op, Result(Arguments...)> {
  static Result call(Arguments... arguments) {
    Operands operands;
    (operands.add(arguments), ...);
    operands.check(Op::name);
    const PartsAsTensors inside;
    Result result = Op::call(arguments...);
    if constexpr (std::is_reference_v<Result>) {
      operands.mark_output(result);
    } else {
      operands.mark_result(Op::name, result);
    }
    return result;
  }
};

// The operator that the user has called, while the operators of which it is composed run; else
// null.
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

void for_each_tensor(const c10::IValue& value, const auto& body) {
  if (value.isTensor()) body(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector())
      body(tensor);
  if (value.isOptionalTensorList())
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) body(*tensor);
}

// Returns the last `count` values on the stack: the arguments or the results of a call.
std::vector<c10::IValue> last(const torch::jit::Stack& stack, size_t count) {
  return {stack.end() - static_cast<int64_t>(count), stack.end()};
}

void run_elementwise(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto arguments = last(*stack, schema.arguments().size());
  // An operator on lists of tensors, such as _foreach_add, counts as one call for each index i: a
  // call with the i-th tensors of all lists. `all` has the operands that are not in lists.
  std::vector<Operands> calls;
  Operands all;
  for (const c10::IValue& argument : arguments) {
    size_t place = 0;
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      const bool is_list = !argument.isTensor();
      if (is_list && place == calls.size()) calls.emplace_back();
      (is_list ? calls[place++] : all).add(tensor);
    });
  }
  const char* name = schema.name().c_str();
  for (const Operands& call : calls)
    call.check(name);
  all.check(name);
  {
    const PartsAsTensors inside;
    op.callBoxed(stack);
  }
  const auto for_each_result = [&](const c10::IValue& results, const auto& body) {
    size_t place = 0;
    for_each_tensor(results, [&](const at::Tensor& result) {
      body(results.isTensor() ? all : calls.at(place++), result);
    });
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias && alias->isWrite())
      for_each_result(arguments[i], [](const Operands& call, const at::Tensor& output) {
        call.mark_output(output);
      });
  }
  for (const c10::IValue& results : last(*stack, schema.returns().size()))
    for_each_result(results, [&](const Operands& call, const at::Tensor& result) {
      call.mark_result(name, result);
    });
}

// Returns whether the result has all elements of the part along one dimension, and so in the same
// order.
bool keeps_order(const at::Tensor& part, const at::Tensor& result) {
  const auto is_long = [](int64_t size) { return size != 1; };
  return result.numel() == part.numel() && std::ranges::count_if(result.sizes(), is_long) <= 1;
}

// Returns whether the result consists of whole pieces of a tensor that at::cat() has made.
bool begins_and_ends_with_pieces(const at::Tensor& part, const at::Tensor& result) {
  const Description of = description_of(part);
  const int64_t begin = result.storage_offset() - part.storage_offset();
  const auto is_an_end = [&](int64_t element) {
    return std::ranges::find(of->pieces, element) != of->pieces.end();
  };
  return is_an_end(begin) && is_an_end(begin + result.numel()) && result.is_contiguous();
}

using Fits = bool (*)(const at::Tensor& part, const at::Tensor& result);

void run_view(const c10::OperatorHandle& op, torch::jit::Stack* stack, Fits fits) {
  const at::Tensor part = last(*stack, op.schema().arguments().size()).front().toTensor();
  const Description of = description_of(part);
  {
    const PartsAsTensors inside;
    op.callBoxed(stack);
  }
  for_each_tensor(stack->back(), [&](const at::Tensor& result) {
    if (!fits(part, result)) refuse_operator(op, *of);
    mark(result, of_result(of));
  });
}

void run_joined(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto of = c10::make_intrusive<PartOf>();
  of->pieces = {0};
  for_each_tensor(last(*stack, op.schema().arguments().size()).front(),
                  [&](const at::Tensor& tensor) {
                    of->pieces.push_back(of->pieces.back() + tensor.numel());
                    if (!is_part(tensor) || !of->parameter.empty()) return;
                    const Description first = description_of(tensor);
                    of->parameter = first->parameter;
                    of->is_gradient = first->is_gradient;
                  });
  {
    const PartsAsTensors inside;
    op.callBoxed(stack);
  }
  mark(stack->back().toTensor(), of);
}

[[noreturn]] void refuse_call(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  Operands operands;
  for (const c10::IValue& argument : last(stack, op.schema().arguments().size()))
    for_each_tensor(argument, [&](const at::Tensor& tensor) { operands.add(tensor); });
  refuse_operator(composed != nullptr ? *composed : op, *operands.of());
}

void run_with_parts(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  switch (known_rule(op)) {
    case PartRule::elementwise:
      return run_elementwise(op, stack);
    case PartRule::reordered:
      return run_view(op, stack, keeps_order);
    case PartRule::cut:
      return run_view(op, stack, begins_and_ends_with_pieces);
    case PartRule::joined:
      return run_joined(op, stack);
    case PartRule::plain: {
      const PartsAsTensors inside;
      return op.callBoxed(stack);
    }
    case PartRule::composed: {
      const Composed outermost(op);
      return op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kPart),
                                stack);
    }
    case PartRule::refused:
      refuse_call(op, *stack);
  }
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_with_parts>());
}

// Kernels for the operators that torch's optimizers call for each parameter.
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericWrapper, library) {
  namespace ops = at::_ops;
  const auto add = [&](const char* name, auto* kernel) { library.impl(name, kernel); };
  add("add.Tensor", &Elementwise<ops::add_Tensor>::call);
  add("add_.Tensor", &Elementwise<ops::add__Tensor>::call);
  add("add_.Scalar", &Elementwise<ops::add__Scalar>::call);
  add("addcdiv_", &Elementwise<ops::addcdiv_>::call);
  add("addcmul", &Elementwise<ops::addcmul>::call);
  add("addcmul_", &Elementwise<ops::addcmul_>::call);
  add("clone", &Elementwise<ops::clone>::call);
  add("copy_", &Elementwise<ops::copy_>::call);
  add("div.Tensor", &Elementwise<ops::div_Tensor>::call);
  add("div_.Tensor", &Elementwise<ops::div__Tensor>::call);
  add("fill_.Scalar", &Elementwise<ops::fill__Scalar>::call);
  add("max.out", &Elementwise<ops::max_out>::call);
  add("maximum", &Elementwise<ops::maximum>::call);
  add("mul.Tensor", &Elementwise<ops::mul_Tensor>::call);
  add("mul_.Tensor", &Elementwise<ops::mul__Tensor>::call);
  add("mul_.Scalar", &Elementwise<ops::mul__Scalar>::call);
  add("neg", &Elementwise<ops::neg>::call);
  add("sqrt", &Elementwise<ops::sqrt>::call);
  add("sqrt_", &Elementwise<ops::sqrt_>::call);
  add("sub.Tensor", &Elementwise<ops::sub_Tensor>::call);
  add("zero_", &Elementwise<ops::zero_>::call);
  add("zeros_like", &Elementwise<ops::zeros_like>::call);
}

}  // namespace

PartsAsTensors::PartsAsTensors() : guard_(kPart) {}

Description part_of(const std::string& parameter, bool is_gradient) {
  auto leaf = c10::make_intrusive<PartOf>(), of_result = c10::make_intrusive<PartOf>();
  leaf->parameter = of_result->parameter = parameter;
  leaf->is_gradient = of_result->is_gradient = is_gradient;
  leaf->of_result = std::move(of_result);
  return leaf;
}

void mark_part(const at::Tensor& tensor, const Description& of) {
  if (of) mark(tensor, of);
}

bool is_part(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->key_set().has(kPart);
}

at::Tensor this_ranks_part(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const PartsAsTensors inside;
  at::Tensor part = tensor.view_as(tensor);
  Keys::of(part) = Keys::of(part).remove(kPart);
  return part;
}

}  // namespace fsdp
