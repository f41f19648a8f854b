#include <ATen/EmptyTensor.h>
#include <c10/util/hash.h>
#include <watch/arguments.h>
#include <watch/operand.h>

#include <algorithm>
#include <cstring>

namespace fsdp::watch {
namespace {

void add(size_t& hash, auto value) {
  hash = c10::hash_combine(hash, std::hash<decltype(value)>{}(value));
}

// Adds the values of the elements of `operand` whose indices in the first `dim` dimensions are
// those of the element at `address`.
void add_values(size_t& hash, const Operand& operand, uint64_t address, size_t dim) {
  if (dim == operand.dims) {
    uint64_t value = 0;
    std::memcpy(&value, reinterpret_cast<const void*>(address),
                std::min<size_t>(operand.width, sizeof value));
    return add(hash, value);
  }
  for (int64_t i = 0; i < operand.sizes[dim]; ++i)
    add_values(hash, operand,
               address + static_cast<uint64_t>(i * operand.strides[dim]) * operand.width, dim + 1);
}

// Returns whether the storage of the tensor has memory for all of its elements. It has none while a
// unit is sharded.
bool has_memory(const at::Tensor& tensor) {
  const size_t needed =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size(),
                                       static_cast<size_t>(tensor.storage_offset()));
  return tensor.storage().data() != nullptr && needed <= tensor.storage().nbytes();
}

void add(size_t& hash, const at::Tensor& tensor) {
  add(hash, tensor.defined());
  if (!tensor.defined()) return;
  add(hash, static_cast<int>(tensor.scalar_type()));
  for (const int64_t size : tensor.sizes())
    add(hash, size);
  const auto operand = operand_of(tensor);
  if (operand && tensor.numel() > 0 && has_memory(tensor))
    add_values(hash, *operand, operand->data, 0);
}

}  // namespace

size_t hash_of_arguments(const at::RecordFunction& function) {
  size_t hash = 0;
  for (const c10::IValue& input : function.inputs()) {
    if (input.isTensor()) add(hash, input.toTensor());
    if (input.isInt()) add(hash, input.toInt());
    if (input.isBool()) add(hash, input.toBool());
    if (input.isDouble()) add(hash, input.toDouble());
    if (input.isIntList())
      for (const int64_t value : input.toIntVector())
        add(hash, value);
    if (input.isTensorList())
      for (const at::Tensor& tensor : input.toTensorVector())
        add(hash, tensor);
  }
  return hash;
}

}  // namespace fsdp::watch
