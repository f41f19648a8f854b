#pragma once

#include <base/torch.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <placement.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// A mark says that a tensor holds this rank's part of a larger one. The dispatcher shows each call
// of an operator with a marked operand, also in a list, to part_dispatch.cpp:
// - operators that compute element by element run, and their results are marked
//   (part_elementwise.h);
// - operators that only rearrange the elements run if the elements keep their order (part_views.h);
// - reductions, such as norm(), are collective: they gather the whole tensor and reduce it, so the
//   result is a plain tensor, and the same on every rank (part_reductions.h);
// - most other operators throw std::logic_error, which names the operator, the parameter and what
//   to call instead.
// part_rules.h has all rules. Views, data() and detach() keep the mark. A tensor gets the mark if
// an operator writes elements of a part to it in place.

// Describes a marked tensor. A result of an operator that computes element by element has the
// `of_result` of the operator's first marked operand.
struct PartOf : c10::BackendMeta {
  std::string parameter;                   // name of the parameter
  bool is_gradient{};                      // part of the gradient, or computed from such a part
  c10::intrusive_ptr<PartOf> of_result{};  // null: this object describes a result itself
  std::shared_ptr<const Placement> placement{};  // null: a result of at::cat(), or not known
  // For a result of at::cat(), otherwise empty: [elements] where each piece begins, and where the
  // last piece ends; and the description of each piece, null if the piece is a plain tensor.
  std::vector<int64_t> pieces{};
  std::vector<c10::intrusive_ptr<PartOf>> of_pieces{};
};

using PartDescription = c10::intrusive_ptr<PartOf>;

// Returns the description for the part of a parameter, or of its gradient.
PartDescription part_of(const std::string& parameter, bool is_gradient,
                        std::shared_ptr<const Placement> placement);

// Returns the description of a result of an operator on a part with this description.
PartDescription of_result(const PartDescription& operand);

// Returns the description of elements of the part `of` whose places in the whole tensor are not
// known.
PartDescription without_places(const PartOf& of);

// Marks `tensor`. Does nothing if `of` is null, or if `tensor` is undefined or is described
// already.
void mark_part(const at::Tensor& tensor, const PartDescription& of);

// Returns whether the tensor has the mark.
bool is_part(const at::Tensor& tensor);

// Returns the description of a marked tensor.
PartDescription description_of(const at::TensorBase& part);

// The key of the mark. No backend uses it, and the dispatcher looks at it before the tensor's other
// keys.
inline constexpr auto kPart = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

// While this object lives, operators of this thread ignore marks, and their results have no mark;
// views keep theirs. The library's own code uses it, because it computes with parts knowingly.
class PartsAsTensors {
 public:
  PartsAsTensors();

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace fsdp
