#include <part_rules.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

namespace fsdp {
namespace {

// Names of operators. Each is the name of the variant that returns a new tensor: "add" also stands
// for "add_" and "_foreach_add".
template <size_t N>
using Names = std::array<std::string_view, N>;

bool is_in(const auto& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Operators that compute element by element, but to which torch gives no tag "pointwise".
constexpr Names<13> kElementwise{
    "copy",      "fill",       "zero",     "masked_fill", "where",       "zeros_like", "ones_like",
    "full_like", "empty_like", "_to_copy", "leaky_relu",  "_pin_memory", "rsub"};
constexpr Names<16> kReordered{"view",    "view_as",      "reshape",        "reshape_as",
                               "flatten", "_unsafe_view", "_reshape_alias", "expand",
                               "squeeze", "unsqueeze",    "transpose",      "permute",
                               "t",       "detach",       "lift",           "lift_fresh"};
// Operators that change the dimensions of a tensor. If such an operator runs on this rank's part of
// a whole tensor, the sizes of its result do not show which sizes the whole tensor would have after
// the operator.
constexpr Names<6> kTurned{"transpose", "permute", "t", "squeeze", "unsqueeze", "expand"};
constexpr Names<2> kCut{"slice", "split_with_sizes"};
constexpr Names<10> kPlain{"is_same_size",      "_has_compatible_shallow_copy_type",
                           "is_set_to",         "is_pinned",
                           "new_zeros",         "new_ones",
                           "new_full",          "new_empty",
                           "new_empty_strided", "record_stream"};
constexpr Names<4> kFused{"_fused_sgd", "_fused_adam", "_fused_adamw", "_fused_adagrad"};
// For an operator with one of these names, the tag "pointwise" counts only for the variant that has
// it, and never for a variant for lists. For example, max.other, which takes two tensors, is
// elementwise, but max() is a reduction.
constexpr Names<5> kNotElementwise{"max", "min", "norm", "powsum", "equal"};
constexpr Names<40> kReductions{"norm",
                                "linalg_vector_norm",
                                "linalg_norm",
                                "linalg_matrix_norm",
                                "frobenius_norm",
                                "powsum",
                                "nuclear_norm",
                                "dist",
                                "dot",
                                "vdot",
                                "inner",
                                "cosine_similarity",
                                "sum",
                                "nansum",
                                "mean",
                                "nanmean",
                                "prod",
                                "max",
                                "min",
                                "amax",
                                "amin",
                                "aminmax",
                                "argmax",
                                "argmin",
                                "std",
                                "var",
                                "std_mean",
                                "var_mean",
                                "median",
                                "nanmedian",
                                "quantile",
                                "all",
                                "any",
                                "count_nonzero",
                                "equal",
                                "allclose",
                                "item",
                                "_local_scalar_dense",
                                "is_nonzero",
                                "logsumexp"};

struct Variant {
  std::string base;
  bool of_lists{}, in_place{};
};

// Takes apart the name of an operator: for "aten::_foreach_add_", variant_of() returns
// {.base = "add", .of_lists = true, .in_place = true}.
Variant variant_of(std::string name) {
  constexpr std::string_view kNamespace = "aten::", kLists = "_foreach_";
  Variant variant;
  if (name.starts_with(kNamespace)) name.erase(0, kNamespace.size());
  variant.of_lists = name.starts_with(kLists);
  if (variant.of_lists) name.erase(0, kLists.size());
  variant.in_place = name.ends_with('_') && !name.ends_with("__");
  if (variant.in_place) name.pop_back();
  variant.base = name;
  return variant;
}

bool is_pointwise(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::pointwise) && !op.hasTag(at::Tag::nondeterministic_seeded);
}

bool any_overload_is_pointwise(const std::string& base) {
  for (const char* overload : {"", "Tensor", "Scalar", "other", "self", "Tensor_Scalar"}) {
    const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + base, overload});
    if (found && is_pointwise(*found)) return true;
  }
  return false;
}

// Returns whether all results are tensors. If the operator works on lists, a result may also be a
// list.
bool returns_tensors(const c10::FunctionSchema& schema, bool of_lists) {
  return std::ranges::all_of(schema.returns(), [&](const c10::Argument& result) {
    const auto kind = result.type()->kind();
    return kind == c10::TypeKind::TensorType || (of_lists && kind == c10::TypeKind::ListType);
  });
}

bool is_elementwise(const c10::OperatorHandle& op, const Variant& variant) {
  if (!returns_tensors(op.schema(), variant.of_lists)) return false;
  const bool is_listed = is_in(kNotElementwise, variant.base);
  if (is_listed) return !variant.of_lists && is_pointwise(op);
  if (is_pointwise(op) || is_in(kElementwise, variant.base)) return true;
  const bool writes_to_out = op.operator_name().overload_name.ends_with("out");
  return (variant.of_lists || variant.in_place || writes_to_out) &&
         any_overload_is_pointwise(variant.base);
}

// Returns whether the operator is one that indexing calls in the place of slice(). An index such as
// {Slice(0, 4), Slice()} compares its ends with the sizes of the tensor. Those of a part have ones
// in front, so torch takes the part for the slice: index() calls alias(), and index_put_() calls
// fill_() with the value as a tensor.
bool is_of_indexing(const c10::OperatorHandle& op, const Variant& variant) {
  return variant.base == "alias" ||
         (variant.base == "fill" && op.operator_name().overload_name == "Tensor");
}

std::string name_of(const PartOf& of) {
  return std::string(of.of_result ? "" : "a tensor that was computed from ") +
         (of.is_gradient ? "the gradient of parameter " : "parameter ") + of.parameter;
}

std::string advice_for(const c10::OperatorHandle& op, const PartOf& of) {
  if (!op.hasTag(at::Tag::nondeterministic_seeded))
    return "full_tensor(tensor) gathers the whole tensor on every rank";
  if (of.is_gradient)
    return "draw a tensor with the sizes of the whole one, from the same seed on every rank";
  return "parameters are whole in model.summon_full_params()";
}

}  // namespace

PartRule part_rule(const c10::OperatorHandle& op) {
  const Variant variant = variant_of(op.schema().name());
  if (!op.schema().name().starts_with("aten::")) return PartRule::refused;
  // sum_to_size() would read the sizes of this rank's part, which are not those of the whole
  // tensor.
  if (variant.base == "sum_to_size" || is_of_indexing(op, variant)) return PartRule::refused;
  if (variant.base == "expand_as") return PartRule::expanded;
  if (is_in(kPlain, variant.base) || is_in(kFused, variant.base)) return PartRule::plain;
  if (is_elementwise(op, variant)) return PartRule::elementwise;
  const bool changes_its_shape = variant.in_place && variant.base != "detach";
  if (is_in(kReordered, variant.base) && !changes_its_shape) return PartRule::reordered;
  if (variant.base == "cat") return PartRule::joined;
  if (is_in(kCut, variant.base)) return PartRule::cut;
  if (is_in(kReductions, variant.base)) return PartRule::reduction;
  // An operator that draws random numbers, such as dropout(), may draw them into a new plain tensor
  // with the sizes of the part.
  const bool is_composed =
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
      !op.hasTag(at::Tag::nondeterministic_seeded);
  return is_composed ? PartRule::composed : PartRule::refused;
}

bool changes_dimensions(const c10::OperatorHandle& op) {
  return is_in(kTurned, variant_of(op.schema().name()).base);
}

void refuse_operator(const c10::OperatorHandle& op, const PartOf& of) {
  const std::string would = op.hasTag(at::Tag::nondeterministic_seeded)
                                ? " would draw numbers for only this rank's part: "
                                : " would be computed from only this rank's part: ";
  throw std::logic_error(op.schema().name() + " of " + name_of(of) + would + advice_for(op, of) +
                         "; this_ranks_part(tensor) is the part as a plain tensor");
}

void refuse_places(const std::string& op, const PartOf& of) {
  throw std::logic_error(op + " of " + name_of(of) +
                         ": another operand is a part too, but of other elements, so the two "
                         "can't be computed element by element; full_tensor(tensor) gathers a "
                         "whole tensor");
}

void refuse_gradient(const std::string& op, const PartOf& of) {
  throw std::logic_error(op + " of " + name_of(of) +
                         ": another operand requires a gradient, which would be computed from only "
                         "this rank's part; compute with full_tensor(tensor), the whole tensor");
}

void refuse_to_gather(const PartOf& of) {
  throw std::logic_error(name_of(of) +
                         " was turned, reshaped, or joined with other tensors, so the whole "
                         "tensor can't be gathered; call full_tensor() before that");
}

void refuse_numel(const std::string& op, const PartOf& of, int64_t numel, const std::string& which,
                  int64_t other_numel) {
  throw std::logic_error(op + " of " + name_of(of) + ": this rank's part has " +
                         std::to_string(numel) + " elements, and " + which + " has " +
                         std::to_string(other_numel) +
                         "; give it tensors that are cut as the part is, such as zeros_like() of "
                         "one, or with the sizes of the whole tensor");
}

}  // namespace fsdp
