#include <ATen/Operators.h>
#include <full_tensor.h>
#include <part_mark.h>
#include <part_rules.h>
#include <this_ranks_part.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <string_view>
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
  if (part->get_backend_meta() == nullptr)
    return part_of("of this model", /*is_gradient=*/false, /*placement=*/nullptr);
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

// Returns whether two parts have the same elements of their whole tensors.
bool same_places(const PartOf& a, const PartOf& b) {
  if (!a.placement || !b.placement) return a.pieces == b.pieces;
  return a.placement == b.placement || a.placement->begins == b.placement->begins;
}

// The operands of one call of an operator that computes element by element. They must outlive this
// object.
class Operands {
 public:
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (!is_part(tensor)) {
      if (tensor.numel() != 1) others_.push_back(&tensor);
      learns_ = learns_ || (tensor.requires_grad() && at::GradMode::is_enabled());
    } else if (part_ == nullptr) {
      part_ = tensor.unsafeGetTensorImpl();
    } else {
      differs_ = differs_ || tensor.numel() != part_->numel() ||
                 (tensor.numel() > 0 && !same_places(*of(), *description_of(tensor)));
    }
  }
  template <class Other>
  void add(const Other&) {}

  bool has_part() const { return part_ != nullptr; }
  Description of() const { return description_of(part_); }
  // Throws std::logic_error if two parts have different elements of their whole tensors, or if a
  // plain operand requires a gradient: autograd would sum its gradient over this rank's part.
  void check(const char* op) const {
    if (differs_) refuse_places(op, *of());
    if (has_part() && learns_) refuse_gradient(op, *of());
  }

  // Returns the operand itself, or, if it has the sizes of the whole tensor or can be broadcast to
  // them, the elements of it that are at the places of the part. Throws std::logic_error if neither
  // is possible.
  const at::Tensor& fit(const char* op, const at::Tensor& tensor) {
    if (!has_part() || std::ranges::find(others_, &tensor) == others_.end()) return tensor;
    const Description of = description_of(part_);
    const bool as_part = same_sizes(tensor, part_->sizes());
    auto own = of->placement ? cut(tensor, *of->placement, part_->sizes()) : std::nullopt;
    const bool is_clear =
        !own || tensor.numel() == 0 || of->placement->begin() % tensor.numel() == 0;
    if (as_part && is_clear) return tensor;
    if (as_part || !own) refuse_numel(op, *of, part_->numel(), "another operand", tensor.numel());
    return cut_.emplace_back(std::move(*own));
  }
  // An operand that the operator writes to: it must have as many elements as the part.
  at::Tensor& fit(const char* op, at::Tensor& tensor) {
    const bool is_plain = std::ranges::find(others_, &tensor) != others_.end();
    if (has_part() && is_plain && tensor.numel() != part_->numel())
      refuse_numel(op, *of(), part_->numel(), "another operand", tensor.numel());
    return tensor;
  }
  template <class Other>
  Other& fit(const char*, Other& other) {
    return other;
  }

  void mark_result(const char* op, const at::Tensor& result) const {
    if (!has_part() || !result.defined()) return;
    if (result.numel() != part_->numel())
      refuse_numel(op, *of(), part_->numel(), "the result", result.numel());
    mark(result, of_result(of()));
  }
  void mark_output(const at::Tensor& output) const {
    if (has_part() && output.defined() && !is_part(output)) mark_written(output, of_result(of()));
  }

 private:
  // Whether the sizes are equal up to leading ones.
  static bool same_sizes(const at::Tensor& tensor, at::IntArrayRef sizes) {
    const auto skipped = [](at::IntArrayRef of) {
      const auto* begin = std::ranges::find_if(of, [](int64_t size) { return size != 1; });
      return at::IntArrayRef(begin, of.end());
    };
    return skipped(tensor.sizes()) == skipped(sizes);
  }

  c10::TensorImpl* part_{};                        // the first operand that is a part
  c10::SmallVector<const at::Tensor*, 4> others_;  // plain tensors with several elements
  bool differs_{};                                 // another part has other elements
  bool learns_{};                                  // a plain tensor requires a gradient
  std::deque<at::Tensor> cut_;                     // of some of `others_`: their own elements
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
    Result result = Op::call(operands.fit(Op::name, arguments)...);
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

// Returns the tensors among the arguments of a call, for each argument.
std::vector<std::vector<at::Tensor>> tensors_in(const std::vector<c10::IValue>& arguments) {
  std::vector<std::vector<at::Tensor>> tensors(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i)
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) { tensors[i].push_back(tensor); });
  return tensors;
}

// Gives argument `i` of the call on the stack other tensors.
void replace(torch::jit::Stack* stack, const c10::FunctionSchema& schema, size_t i,
             const std::vector<at::Tensor>& tensors) {
  c10::IValue& argument = (*stack)[stack->size() - schema.arguments().size() + i];
  argument = argument.isTensor() ? c10::IValue(tensors.front()) : c10::IValue(tensors);
}

void run_elementwise(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto arguments = last(*stack, schema.arguments().size());
  auto tensors = tensors_in(arguments);
  // An operator on lists of tensors, such as _foreach_add, counts as one call for each index i: a
  // call with the i-th tensors of all lists. `all` has the operands that are not in lists.
  std::deque<Operands> calls;
  Operands all;
  const auto call_of = [&](size_t argument, size_t place) -> Operands& {
    if (arguments[argument].isTensor()) return all;
    while (calls.size() <= place)
      calls.emplace_back();
    return calls[place];
  };
  for (size_t i = 0; i < tensors.size(); ++i)
    for (size_t place = 0; place < tensors[i].size(); ++place)
      call_of(i, place).add(tensors[i][place]);
  const char* name = schema.name().c_str();
  for (const Operands& call : calls)
    call.check(name);
  all.check(name);
  const auto is_written = [&](size_t i) {
    const auto* alias = schema.arguments()[i].alias_info();
    return alias != nullptr && alias->isWrite();
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    bool changed = false;
    for (size_t place = 0; place < tensors[i].size(); ++place) {
      at::Tensor& tensor = tensors[i][place];
      Operands& call = call_of(i, place);
      const at::Tensor& own =
          is_written(i) ? call.fit(name, tensor) : call.fit(name, std::as_const(tensor));
      changed = changed || &own != &tensor;
      tensor = own;
    }
    if (changed) replace(stack, schema, i, tensors[i]);
  }
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
  for (size_t i = 0; i < arguments.size(); ++i)
    if (is_written(i))
      for_each_result(arguments[i], [](const Operands& call, const at::Tensor& output) {
        call.mark_output(output);
      });
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

// Returns the description of elements of `of` whose places are not known.
Description without_places(const Description& of) {
  return part_of(of->parameter, of->is_gradient, /*placement=*/nullptr)->of_result;
}

// Returns the description of a view of a tensor that was joined from pieces: of those pieces that
// the view has. If the view is empty, it can be any of several empty pieces.
Description of_pieces(const Description& of, int64_t begin, int64_t numel) {
  if (numel == 0) return without_places(of);
  // The last piece that begins there, because pieces before it may be empty.
  const auto after = std::ranges::upper_bound(of->pieces, begin) - of->pieces.begin();
  auto joined = c10::make_intrusive<PartOf>();
  joined->parameter = of->parameter;
  joined->is_gradient = of->is_gradient;
  for (auto i = static_cast<size_t>(after - 1); i < of->pieces.size(); ++i) {
    joined->pieces.push_back(of->pieces[i] - begin);
    if (joined->pieces.back() == numel) break;
    joined->of_pieces.push_back(of->of_pieces[i]);
  }
  const auto& pieces = joined->of_pieces;
  return pieces.size() == 1 && pieces[0] ? of_result(pieces[0]) : joined;
}

void run_view(const c10::OperatorHandle& op, torch::jit::Stack* stack, Fits fits) {
  const auto arguments = last(*stack, op.schema().arguments().size());
  const at::Tensor part = arguments.front().toTensor();
  {
    const PartsAsTensors inside;
    op.callBoxed(stack);
  }
  if (!is_part(part)) return;  // part of view_as() is only the tensor whose sizes are taken
  Description of = description_of(part);
  // An empty piece becomes that of the tensor whose sizes are taken.
  if (part.numel() == 0 && arguments.size() > 1 && arguments[1].isTensor() &&
      is_part(arguments[1].toTensor()))
    of = description_of(arguments[1].toTensor());
  for_each_tensor(stack->back(), [&](const at::Tensor& result) {
    if (!fits(part, result)) refuse_operator(op, *of);
    const bool is_whole = result.numel() == part.numel();
    const int64_t begin = result.storage_offset() - part.storage_offset();
    mark(result, changes_dimensions(op) ? without_places(of)
                 : is_whole             ? of_result(of)
                                        : of_pieces(of, begin, result.numel()));
  });
}

void run_joined(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto of = c10::make_intrusive<PartOf>();
  of->pieces = {0};
  for_each_tensor(last(*stack, op.schema().arguments().size()).front(),
                  [&](const at::Tensor& tensor) {
                    of->pieces.push_back(of->pieces.back() + tensor.numel());
                    of->of_pieces.push_back(is_part(tensor) ? description_of(tensor) : nullptr);
                    if (!is_part(tensor) || !of->parameter.empty()) return;
                    of->parameter = of->of_pieces.back()->parameter;
                    of->is_gradient = of->of_pieces.back()->is_gradient;
                  });
  {
    const PartsAsTensors inside;
    op.callBoxed(stack);
  }
  mark(stack->back().toTensor(), of);
}

// Collective. Returns the whole tensor of which `part` is described by `of`: with the sizes of the
// parameter if the part has as many dimensions, or flat if the part is.
at::Tensor gather(const at::Tensor& part, const PartOf& of) {
  const bool is_flat = part.dim() == 1;
  if (of.placement && part.numel() == of.placement->numel()) {
    const size_t dims = std::max<size_t>(of.placement->sizes.size(), 1);
    const bool has_its_sizes =
        part.dim() == static_cast<int64_t>(dims) && part.size(-1) == part.numel();
    if (!is_flat && !has_its_sizes) refuse_to_gather(of);
    const at::Tensor whole = gather_parts(part, *of.placement, of.parameter);
    return has_its_sizes ? whole : whole.reshape({-1});
  }
  const bool is_known = !of.of_pieces.empty() && !std::ranges::count(of.of_pieces, nullptr);
  if (!is_flat || !is_known) refuse_to_gather(of);
  std::vector<at::Tensor> wholes;
  for (size_t i = 0; i < of.of_pieces.size(); ++i) {
    const at::Tensor piece = part.narrow(0, of.pieces[i], of.pieces[i + 1] - of.pieces[i]);
    wholes.push_back(gather(piece, *of.of_pieces[i]));
  }
  return at::cat(wholes);
}

// Collective. Returns the whole tensor of a marked tensor.
at::Tensor whole_of(const at::Tensor& part) {
  const Description of = description_of(part);
  const at::Tensor plain = this_ranks_part(part);
  // The gradient that comes back is a part too, so a sum over it is that of the whole gradient.
  if (plain.requires_grad())
    plain.register_hook([of](const at::Tensor& gradient) {
      const at::Tensor copy = gradient.clone();
      mark(copy, of_result(of));
      return copy;
    });
  const PartsAsTensors inside;
  return gather(plain, *of);
}

// Whether the operator gives the same if it is called with the results of calls with pieces of a
// tensor.
bool reduces_pieces(const c10::OperatorHandle& op) {
  constexpr std::array<std::string_view, 4> kNames{"aten::all", "aten::any", "aten::max",
                                                   "aten::min"};
  return op.operator_name().overload_name.empty() &&
         std::ranges::find(kNames, op.schema().name()) != kNames.end();
}

// Collective, without autograd. Reduces each rank's part, and then the results.
void reduce_pieces(const c10::OperatorHandle& op, const at::Tensor& part,
                   torch::jit::Stack* stack) {
  const Description of = description_of(part);
  const PartsAsTensors inside;
  const at::Tensor some = part.numel() > 0 ? this_ranks_part(part) : at::zeros({1}, part.options());
  stack->back() = some;
  op.callBoxed(stack);
  stack->back() = gather_values(stack->back().toTensor(), *of->placement, of->parameter);
  op.callBoxed(stack);
}

void run_reduction(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const CallerScope caller(op.schema().name().c_str());
  const auto arguments = last(*stack, op.schema().arguments().size());
  auto tensors = tensors_in(arguments);
  const auto is_some_part = [](const at::Tensor& tensor) {
    return tensor.defined() && is_part(tensor);
  };
  Description of;
  int64_t numel = 0;  // of the parts
  bool differentiates = false;
  for (const auto& some : tensors)
    for (const at::Tensor& tensor : some) {
      if (!is_some_part(tensor)) continue;
      if (!of) of = description_of(tensor);
      numel = tensor.numel();
      differentiates = differentiates || (at::GradMode::is_enabled() && tensor.requires_grad());
    }
  if (reduces_pieces(op) && of->placement && of->placement->numel() == numel && !differentiates)
    return reduce_pieces(op, tensors.front().front(), stack);
  for (size_t i = 0; i < tensors.size(); ++i) {
    bool changed = false;
    for (at::Tensor& tensor : tensors[i]) {
      if (!tensor.defined()) continue;
      const bool is_whole = !of->placement || tensor.sizes() == of->placement->sizes;
      if (!is_part(tensor)) {
        if (tensor.numel() == numel && numel > 1 && !is_whole)
          refuse_numel(op.schema().name(), *of, numel, "another, plain operand", tensor.numel());
        continue;
      }
      tensor = whole_of(tensor);
      changed = true;
    }
    if (changed) replace(stack, op.schema(), i, tensors[i]);
  }
  const PartsAsTensors inside;
  op.callBoxed(stack);
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
    case PartRule::reduction:
      return run_reduction(op, stack);
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

Description part_of(const std::string& parameter, bool is_gradient,
                    std::shared_ptr<const Placement> placement) {
  auto leaf = c10::make_intrusive<PartOf>(), of_result = c10::make_intrusive<PartOf>();
  leaf->parameter = of_result->parameter = parameter;
  leaf->is_gradient = of_result->is_gradient = is_gradient;
  leaf->placement = of_result->placement = std::move(placement);
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

at::Tensor full_tensor(const at::Tensor& tensor) {
  if (!tensor.defined() || !is_part(tensor)) return tensor;
  const CallerScope caller("full_tensor()");
  return whole_of(tensor);
}

}  // namespace fsdp
