#include <watch/operand.h>

#include <algorithm>

namespace fsdp::watch {

std::optional<Operand> operand_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || !tensor.is_cpu() ||
      !tensor.has_storage() || tensor.dim() > static_cast<int64_t>(kDims))
    return {};
  Operand operand{};
  operand.width = tensor.element_size();
  operand.dims = static_cast<size_t>(tensor.dim());
  operand.data = reinterpret_cast<uint64_t>(tensor.storage().data()) +
                 static_cast<uint64_t>(tensor.storage_offset()) * operand.width;
  std::copy_n(tensor.sizes().begin(), operand.dims, operand.sizes.begin());
  std::copy_n(tensor.strides().begin(), operand.dims, operand.strides.begin());
  return operand;
}

}  // namespace fsdp::watch
