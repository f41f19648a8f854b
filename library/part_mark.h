#pragma once

#include <base/torch.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <placement.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// A mark says that a tensor is this rank's part of a larger tensor (the whole tensor). If an
// operand of an operator is marked, alone or in a list, the dispatcher calls the kernel in
// part_dispatch.cpp:
// - operators that compute element by element run, and their results are marked
//   (part_elementwise.h);
// - operators that only rearrange the elements run if the elements keep their order (part_views.h);
// - reductions, such as norm(), are collective: they gather the whole tensor and reduce it, so the
//   result is a plain tensor, and the same on every rank (part_reductions.h);
// - most other operators throw std::logic_error, which names the operator, the parameter and what
//   to call instead.
// part_rules.h has all rules. Views, data() and detach() keep the mark. A tensor also gets the mark
// if an operator writes elements of a marked tensor to it in place.

// The description that mark_part() stores in a marked tensor: of which whole tensor the marked
// tensor is this rank's part. The result of an operator that computes element by element gets
// of_result() of the operator's first marked operand as its description.
struct PartOf : c10::BackendMeta {
  // Name of a parameter. The whole tensor is this parameter or its gradient, or was computed from
  // one of the two.
  std::string parameter;
  // true: the whole tensor is the gradient of `parameter`, or was computed from the gradient.
  // false: the whole tensor is the parameter, or was computed from the parameter.
  bool is_gradient{};
  // The description for results that are computed from this tensor; null if this object is itself
  // the description of such a result.
  c10::intrusive_ptr<PartOf> of_result{};
  // Says which elements of the whole tensor each rank has; null if that is not known, or if the
  // marked tensor is a result of at::cat().
  std::shared_ptr<const Placement> placement{};
  // `pieces` and `of_pieces` are empty except for a result of at::cat(), which consists of pieces:
  // the tensors that at::cat() has joined. `pieces`: the index of the first element of each piece,
  // and then the number of all elements. `of_pieces`: the description of each piece; null if the
  // piece is a plain tensor.
  std::vector<int64_t> pieces{};
  std::vector<c10::intrusive_ptr<PartOf>> of_pieces{};
};

using PartDescription = c10::intrusive_ptr<PartOf>;

// Returns a new description for this rank's part of a parameter or, if `is_gradient` is true, of
// the parameter's gradient.
PartDescription part_of(const std::string& parameter, bool is_gradient,
                        std::shared_ptr<const Placement> placement);

// Returns the description for the result of an operator that computes with a marked tensor.
// `operand` is the description of that marked tensor.
PartDescription of_result(const PartDescription& operand);

// `of` describes a marked tensor. Returns the description for a tensor that has elements of the
// marked tensor, if it is not known where these elements lie in the whole tensor.
PartDescription without_places(const PartOf& of);

// Marks `tensor` as this rank's part of a larger tensor, and stores the description `of` in it.
// Does nothing if `of` is null, if `tensor` is undefined, or if it has a mark and a description
// already.
void mark_part(const at::Tensor& tensor, const PartDescription& of);

// Returns whether the tensor is marked as this rank's part of a larger tensor.
bool is_part(const at::Tensor& tensor);

// Returns the PartOf that mark_part() has stored in the marked tensor `part`. If `part` has none,
// returns a new PartOf without a placement.
PartDescription description_of(const at::TensorBase& part);

// The dispatch key that marks a tensor as this rank's part of a larger tensor. No backend uses this
// key, and the dispatcher looks at it before the tensor's other keys.
inline constexpr auto kPart = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

// While this object lives, the operators that this thread runs treat marked tensors as plain
// tensors, and their results are not marked; only a view of a marked tensor keeps the mark. The
// library uses this class in its own code, which computes with this rank's parts on purpose.
class PartsAsTensors {
 public:
  PartsAsTensors();

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace fsdp
