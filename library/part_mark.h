#pragma once

#include <base/torch.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <placement.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// A mark says that a tensor holds this rank's part of a larger one. If an operand of an operator is
// marked, alone or in a list, the dispatcher calls the kernel in part_dispatch.cpp:
// - operators that compute element by element run, and their results are marked
//   (part_elementwise.h);
// - operators that only rearrange the elements run if the elements keep their order (part_views.h);
// - reductions, such as norm(), are collective: they gather the whole tensor and reduce it, so the
//   result is a plain tensor, and the same on every rank (part_reductions.h);
// - most other operators throw std::logic_error, which names the operator, the parameter and what
//   to call instead.
// part_rules.h has all rules. Views, data() and detach() keep the mark. A tensor gets the mark if
// an operator writes elements of a part to it in place.

// Describes a marked tensor. If an operator computes element by element, its result gets the
// `of_result` of the operator's first marked operand as its description.
struct PartOf : c10::BackendMeta {
  std::string parameter;  // name of the parameter
  // Whether the tensor is a part of the parameter's gradient, or was computed from such a part.
  bool is_gradient{};
  // The description of results that are computed from this part; null if this object itself
  // describes such a result.
  c10::intrusive_ptr<PartOf> of_result{};
  // Where the part lies in the whole tensor; null if that is not known, or for a result of
  // at::cat().
  std::shared_ptr<const Placement> placement{};
  // For a result of at::cat(), which joins pieces; otherwise empty. `pieces`: [elements] where each
  // piece begins, and at last where the last piece ends. `of_pieces`: the description of each
  // piece; null if the piece is a plain tensor.
  std::vector<int64_t> pieces{};
  std::vector<c10::intrusive_ptr<PartOf>> of_pieces{};
};

using PartDescription = c10::intrusive_ptr<PartOf>;

// Returns the description for the part of a parameter, or of its gradient.
PartDescription part_of(const std::string& parameter, bool is_gradient,
                        std::shared_ptr<const Placement> placement);

// Returns the description of a result that an operator computes from the part that `operand`
// describes.
PartDescription of_result(const PartDescription& operand);

// Returns the description of elements of the part `of` whose places in the whole tensor are not
// known.
PartDescription without_places(const PartOf& of);

// Marks `tensor`. Does nothing if `of` is null, or if `tensor` is undefined or is described
// already.
void mark_part(const at::Tensor& tensor, const PartDescription& of);

// Returns whether the tensor has the mark of a part.
bool is_part(const at::Tensor& tensor);

// Returns the description of a marked tensor.
PartDescription description_of(const at::TensorBase& part);

// The dispatch key that serves as the mark. No backend uses it, and the dispatcher looks at it
// before the tensor's other keys.
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
