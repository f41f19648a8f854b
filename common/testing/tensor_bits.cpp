#include <c10/core/impl/LocalDispatchKeySet.h>
#include <testing/tensor_bits.h>

#include <cstring>
#include <stdexcept>
#include <typeinfo>

namespace fsdp {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// Throws std::logic_error if `keys` has a dispatch key other than those of PyTorch's own kernels
// for dense CPU tensors.
void check(DispatchKeySet keys, const std::string& whose) {
  constexpr DispatchKeySet kOrdinary({DispatchKey::CPU, DispatchKey::AutogradCPU,
                                      DispatchKey::AutocastCPU, DispatchKey::ADInplaceOrView,
                                      DispatchKey::BackendSelect});
  const DispatchKey other = (keys - kOrdinary).highestFunctionalityKey();
  if (other == DispatchKey::Undefined) return;
  throw std::logic_error(whose + " go to dispatch key " + c10::toString(other) +
                         ", so a fallback would answer for what the test looks at");
}

void check(const at::Tensor& tensor) {
  check_dispatch();
  if (!tensor.is_cpu())
    throw std::logic_error("a tensor on " + tensor.device().str() + " has no bytes here");
  check(tensor.key_set(), "the tensor's operators");
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (typeid(impl) != typeid(c10::TensorImpl))
    throw std::logic_error("the tensor has a class of its own, which is not read");
}

void append(std::vector<uint8_t>& bytes, const uint8_t* from, size_t width, at::IntArrayRef sizes,
            at::IntArrayRef strides) {
  if (sizes.empty()) {
    bytes.insert(bytes.end(), from, from + width);
    return;
  }
  for (int64_t i = 0; i < sizes[0]; ++i)
    append(bytes, from + i * strides[0] * static_cast<int64_t>(width), width, sizes.slice(1),
           strides.slice(1));
}

}  // namespace

void check_dispatch() {
  check(c10::impl::tls_local_dispatch_key_set().included_, "operators of this thread");
}

std::vector<uint8_t> bytes_of(const at::Tensor& tensor) {
  check(tensor);
  const auto* begin = static_cast<const uint8_t*>(tensor.const_data_ptr());
  if (tensor.is_contiguous()) return {begin, begin + tensor.nbytes()};
  std::vector<uint8_t> bytes;
  bytes.reserve(tensor.nbytes());
  append(bytes, begin, tensor.element_size(), tensor.sizes(), tensor.strides());
  return bytes;
}

template <typename T>
std::vector<T> values_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() != c10::CppTypeToScalarType<T>::value) {
    throw std::logic_error(std::string("the tensor holds ") + c10::toString(tensor.scalar_type()) +
                           ", not " + c10::toString(c10::CppTypeToScalarType<T>::value));
  }
  const auto bytes = bytes_of(tensor);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
template std::vector<float> values_of(const at::Tensor& tensor);
template std::vector<int64_t> values_of(const at::Tensor& tensor);

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto of_a = bytes_of(a), of_b = bytes_of(b);
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && of_a == of_b;
}

}  // namespace fsdp
