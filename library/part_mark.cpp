#include <part_mark.h>
#include <this_ranks_part.h>

#include <utility>

namespace fsdp {
namespace {

// Gives access to TensorImpl::key_set_, which is protected.
struct Keys : c10::TensorImpl {
  static c10::DispatchKeySet& of(const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->*(&Keys::key_set_);
  }
};

// Returns the PartOf that mark_part() has stored in a marked tensor, or null if there is none: a
// view that was made while a PartsAsTensors lived has the mark, but no PartOf.
PartOf* description_if_any(const at::TensorBase& tensor) {
  return static_cast<PartOf*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

}  // namespace

PartsAsTensors::PartsAsTensors() : guard_(kPart) {}

PartDescription part_of(const std::string& parameter, bool is_gradient,
                        std::shared_ptr<const Placement> placement) {
  auto leaf = c10::make_intrusive<PartOf>(), of_result = c10::make_intrusive<PartOf>();
  leaf->parameter = of_result->parameter = parameter;
  leaf->is_gradient = of_result->is_gradient = is_gradient;
  leaf->placement = of_result->placement = std::move(placement);
  leaf->of_result = std::move(of_result);
  return leaf;
}

PartDescription of_result(const PartDescription& operand) {
  return operand->of_result ? operand->of_result : operand;
}

PartDescription without_places(const PartOf& of) {
  return part_of(of.parameter, of.is_gradient, /*placement=*/nullptr)->of_result;
}

void mark_part(const at::Tensor& tensor, const PartDescription& of) {
  if (!of || !tensor.defined() || (is_part(tensor) && description_if_any(tensor) != nullptr))
    return;
  Keys::of(tensor) = Keys::of(tensor).add(kPart);
  tensor.unsafeGetTensorImpl()->set_backend_meta(of);
}

bool is_part(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->key_set().has(kPart);
}

PartDescription description_of(const at::TensorBase& part) {
  PartOf* const of = description_if_any(part);
  if (of == nullptr) return part_of("of this model", /*is_gradient=*/false, /*placement=*/nullptr);
  return PartDescription::reclaim_copy(of);
}

at::Tensor this_ranks_part(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const PartsAsTensors inside;
  at::Tensor part = tensor.view_as(tensor);
  Keys::of(part) = Keys::of(part).remove(kPart);
  return part;
}

}  // namespace fsdp
