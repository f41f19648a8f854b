#include <ATen/Operators.h>
#include <part_calls.h>
#include <part_elementwise.h>
#include <part_mark.h>
#include <part_rules.h>
#include <torch/library.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <type_traits>
#include <utility>

namespace fsdp {
namespace {

// `a` and `b` describe this rank's parts of two tensors. Returns whether the two parts have
// elements at the same places of whole tensors with the same sizes. If the places of neither part
// are known, compares only where the pieces begin that at::cat() has joined.
bool same_places(const PartOf& a, const PartOf& b) {
  if (&a == &b) return true;
  if (!a.placement && !b.placement) return a.pieces == b.pieces;
  if (!a.placement || !b.placement) return false;
  return a.placement == b.placement ||
         (a.placement->begins == b.placement->begins && a.placement->sizes == b.placement->sizes);
}

// Marks `tensor` as this rank's part of a larger tensor, because an operator has written elements
// of such a part to it in place. If `tensor` is a view, also marks its base.
void mark_written(const at::Tensor& tensor, const PartDescription& of) {
  if (is_part(tensor)) return;
  mark_part(tensor, of);
  if (tensor.is_view()) mark_part(at::Tensor(at::TensorBase(tensor._base())), of);
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
      part_ = &tensor;
    } else {
      differs_ = differs_ || !same_sizes(tensor, part_->sizes()) ||
                 (tensor.numel() > 0 && !same_places(*of(), *description_of(tensor)));
    }
  }
  template <class Other>
  void add(const Other&) {}

  bool has_part() const { return part_ != nullptr; }
  PartDescription of() const { return description_of(*part_); }
  // Throws std::logic_error if two operands are parts with different elements of their whole
  // tensors, or if a plain operand (one that is not a part) requires a gradient: autograd would sum
  // that gradient over this rank's part only.
  void check(const char* op) const {
    if (differs_) refuse_places(op, *of());
    if (has_part() && learns_) refuse_gradient(op, *of());
  }

  // Returns what the operator gets in the place of `tensor`, an operand. "The part" is the first
  // operand that is this rank's part of a whole tensor.
  // - Returns `tensor` itself if it is a part, has one element, or has the sizes of the part.
  // - Returns the elements of `tensor` at the places of the part if `tensor` has the sizes of the
  //   whole tensor or can be broadcast to them.
  // Throws std::logic_error if no item applies, or if both apply and give different elements.
  const at::Tensor& fit(const char* op, const at::Tensor& tensor) {
    if (!has_part() || std::ranges::find(others_, &tensor) == others_.end()) return tensor;
    const PartDescription of = description_of(*part_);
    const bool as_part = same_sizes(tensor, part_->sizes());
    auto own = of->placement ? cut(tensor, *of->placement, part_->sizes()) : std::nullopt;
    const bool is_clear =
        !own || tensor.numel() == 0 || of->placement->begin() % tensor.numel() == 0;
    if (as_part && is_clear) return tensor;
    if (as_part || !own) refuse_numel(op, *of, part_->numel(), "another operand", tensor.numel());
    return cut_.emplace_back(std::move(*own));
  }
  const at::Tensor& fit(const char* op, at::Tensor&& tensor) = delete;
  // Returns `tensor`, an operand that the operator writes to. Throws std::logic_error if it is a
  // plain tensor with several elements, but with another number of elements than the operand that
  // is this rank's part of a tensor.
  at::Tensor& fit(const char* op, at::Tensor& tensor) {
    const bool is_plain = std::ranges::find(others_, &tensor) != others_.end();
    if (has_part() && is_plain && tensor.numel() != part_->numel())
      refuse_numel(op, *of(), part_->numel(), "another operand", tensor.numel());
    return tensor;
  }
  template <class Other>
  Other& fit(const char*, Other& other) {
    return other;  // NOLINT: `other` is an argument of the operator, which outlives the call
  }

  void mark_result(const char* op, const at::Tensor& result) const {
    if (!has_part() || !result.defined()) return;
    if (result.numel() != part_->numel())
      refuse_numel(op, *of(), part_->numel(), "the result", result.numel());
    mark_part(result, of_result(of()));
  }
  void mark_output(const at::Tensor& output) const {
    if (has_part() && output.defined() && !is_part(output)) mark_written(output, of_result(of()));
  }

 private:
  // Returns whether the sizes of `tensor` are `sizes`, apart from leading dimensions of size 1.
  static bool same_sizes(const at::Tensor& tensor, at::IntArrayRef sizes) {
    const auto skipped = [](at::IntArrayRef of) {
      const auto* begin = std::ranges::find_if(of, [](int64_t size) { return size != 1; });
      return at::IntArrayRef(begin, of.end());
    };
    return skipped(tensor.sizes()) == skipped(sizes);
  }

  // The first operand that is this rank's part of a larger tensor; null if no operand is a part.
  const at::Tensor* part_{};
  // The operands of the call that are plain tensors (not this rank's parts of larger tensors),
  // except those with exactly one element.
  c10::SmallVector<const at::Tensor*, 4> others_;
  // Says whether a later operand is a part too, but has other elements of its whole tensor than
  // `part_`.
  bool differs_{};
  // Says whether autograd would compute a gradient for an operand that is a plain tensor, not a
  // part.
  bool learns_{};
  // Owns the tensors that fit() has cut out of operands with the sizes of the whole tensor.
  c10::SmallVector<at::Tensor, 4> cut_;
};

// The kernel for the operator Op, which computes element by element, if an operand is marked as
// this rank's part of a tensor. The fallback run_with_parts() would work too, but takes 20 times as
// long.
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

// Registers the kernel Elementwise for the operators that torch's optimizers call for each
// parameter.
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

void run_elementwise(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto arguments = last_values(*stack, schema.arguments().size());
  // Element i: the tensors in argument i of the operator.
  std::vector<std::vector<at::Tensor>> tensors;
  for (const c10::IValue& argument : arguments)
    tensors.push_back(tensors_in(argument));
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
  Values fitted = arguments;
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
    if (!changed) continue;
    fitted[i] = arguments[i].isTensor() ? c10::IValue(tensors[i].front()) : c10::IValue(tensors[i]);
  }
  replace_last_values(stack, fitted);
  {
    const PartsAsTensors inside;
    op.callBoxed(stack);
  }
  const auto for_each_result = [&](const c10::IValue& results, const auto& body) {
    size_t place = 0;
    for (const at::Tensor& result : tensors_in(results))
      body(results.isTensor() ? all : calls.at(place++), result);
  };
  for (size_t i = 0; i < arguments.size(); ++i)
    if (is_written(i))
      for_each_result(arguments[i], [](const Operands& call, const at::Tensor& output) {
        call.mark_output(output);
      });
  for (const c10::IValue& results : last_values(*stack, schema.returns().size()))
    for_each_result(results, [&](const Operands& call, const at::Tensor& result) {
      call.mark_result(name, result);
    });
}

}  // namespace fsdp
