#include <memory/storage.h>
#include <part_of_gradient.h>
#include <torch/library.h>

#include <stdexcept>

namespace fsdp {
namespace {

// A dispatch key that no backend has. Views of a tensor keep it, results of operators do not.
constexpr auto kPart = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
            torch::jit::Stack* /*stack*/) {
  throw std::logic_error(op.schema().name() +
                         " of .grad of model.parameters() would be that of this rank's part: clip "
                         "by model.clip_grad_norm_(), which returns the norm; LBFGS can't be used");
}

at::Tensor marked(const at::Tensor& part) {
  const at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(part.storage()), part.key_set().add(kPart), part.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(part.sizes(), part.strides(),
                                                      part.storage_offset());
  return result;
}

// On the way to a maximum norm, which is abs().max().
at::Tensor abs_of_part(const at::Tensor& part) {
  const c10::impl::ExcludeDispatchKeyGuard as_always(kPart);
  return marked(part.abs());
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericWrapper, library) {
  library.impl("abs", &abs_of_part);
  for (const char* name : {"norm.Scalar", "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim",
                           "linalg_vector_norm", "max", "dot", "cat"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

}  // namespace

at::Tensor part_of_gradient(const at::Tensor& gradients, int64_t offset, int64_t numel,
                            int world_size) {
  // No view to autograd: Optimizer::zero_grad() detaches gradients in place.
  const at::Tensor part = view_of_storage(gradients.storage(), gradients.storage_offset() + offset,
                                          {numel}, gradients.scalar_type());
  return world_size == 1 ? part : marked(part);
}

}  // namespace fsdp
