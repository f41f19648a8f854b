#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <part_mark.h>

#include <string>

namespace fsdp {

// What an operator may do to this rank's part of a tensor.
enum class PartRule {
  elementwise,  // its results are parts
  reordered,    // its results are parts, and an error unless the elements keep their order
  joined,       // at::cat(): its result is a part of several tensors
  cut,          // its results are parts of what was joined, and an error if they begin elsewhere
  plain,        // its results have nothing of the elements' values
  composed,     // it calls other operators, which have rules
  refused
};

// Returns the rule of an operator: from torch's tag "pointwise" of it or of the operator that it is
// a variant of (in place, with `out`, of lists), and from a list of names.
PartRule part_rule(const c10::OperatorHandle& op);

// Throws std::logic_error, which says in one sentence that the operator would be that of this
// rank's part, and what to call instead.
[[noreturn]] void refuse_operator(const c10::OperatorHandle& op, const PartOf& of);

// Throws std::logic_error: `which` ("another operand", "the result") has other_numel elements, so
// it is not cut as this rank's part, which has `numel`.
[[noreturn]] void refuse_numel(const std::string& op, const PartOf& of, int64_t numel,
                               const std::string& which, int64_t other_numel);

}  // namespace fsdp
