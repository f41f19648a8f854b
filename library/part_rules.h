#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <part_mark.h>

#include <string>

namespace fsdp {

// What the library does if an operator is called with a part: a tensor with this rank's elements of
// a larger tensor, the whole tensor. A plain tensor is one that is not a part.
enum class PartRule {
  // The operator runs on this rank's part. Its results are parts too.
  elementwise,
  // The operator runs on this rank's part, but throws unless the elements keep their order. Its
  // results are parts too.
  reordered,
  // The operator is expand_as(). If only its second operand is a part, it expands the first one to
  // the sizes of the whole tensor, and its result is a plain tensor. Else it throws.
  expanded,
  // The operator is at::cat(). It runs on this rank's parts, and its result is a part that consists
  // of several pieces.
  joined,
  // The operator runs on a result of at::cat(), which consists of pieces: the tensors that
  // at::cat() has joined. It throws unless each of its results consists of whole pieces.
  cut,
  // The operator is collective: the whole tensors are gathered, and it runs on them. Its results
  // are plain tensors.
  reduction,
  // The operator runs on this rank's part as on a plain tensor. Its results do not contain the
  // part's elements.
  plain,
  // The operator calls other operators, to each of which its own rule applies.
  composed,
  // A call of the operator with a part throws std::logic_error.
  refused
};

// Returns the rule of an operator.
// - An operator outside the namespace aten:: is refused.
// - Lists of names in part_rules.cpp decide on most operators.
// - An operator is elementwise if it returns only tensors and torch has tagged it "pointwise" but
//   not "nondeterministic_seeded" (or has tagged so the operator of which it is a variant in place,
//   with `out`, or for lists).
// - Of the operators to which none of this applies, those that torch implements by calls of other
//   operators (CompositeImplicitAutograd) are composed, and all others are refused.
PartRule part_rule(const c10::OperatorHandle& op);

// Returns whether the operator changes which dimensions a tensor has, or their order, as squeeze()
// and transpose() do.
bool changes_dimensions(const c10::OperatorHandle& op);

// Throws std::logic_error, which says that the operator would compute with this rank's part only,
// and what to call instead.
[[noreturn]] void refuse_operator(const c10::OperatorHandle& op, const PartOf& of);

// Throws std::logic_error, which says that two operands are parts with different elements of their
// whole tensors.
[[noreturn]] void refuse_places(const std::string& op, const PartOf& of);

// Throws std::logic_error, which says that an operand that is a plain tensor would get a gradient
// from this rank's part only.
[[noreturn]] void refuse_gradient(const std::string& op, const PartOf& of);

// Throws std::logic_error, which says that the whole tensor can't be gathered: its sizes or the
// places of its elements are not known.
[[noreturn]] void refuse_to_gather(const PartOf& of);

// Throws std::logic_error, which says that `which` ("another operand", "the result") has
// other_numel elements and this rank's part has `numel`, so the two are not cut in the same way.
[[noreturn]] void refuse_numel(const std::string& op, const PartOf& of, int64_t numel,
                               const std::string& which, int64_t other_numel);

}  // namespace fsdp
