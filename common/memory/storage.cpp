#include <memory/storage.h>
#include <memory/storage_guard.h>

#include <utility>

namespace fsdp {

c10::Storage storage_of_no_bytes(c10::DeviceType device) {
  c10::Allocator* allocator = c10::GetAllocator(device);
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                               allocator->allocate(0), allocator, true);
}

// Calls the allocator even if `bytes` is 0, because the DataPtr that it then returns is null but
// keeps the device; a default DataPtr would lose the device.
void resize_storage(const c10::Storage& storage, int64_t bytes) {
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  auto memory = impl.allocator()->allocate(static_cast<size_t>(bytes));
  const bool guarded = is_guarded(storage);
  if (guarded) refuse_access(storage, bytes == 0);
  impl.set_data_ptr_noswap(std::move(memory));
  if (!guarded || bytes > 0) impl.set_nbytes(static_cast<size_t>(bytes));
}

at::Tensor view_of_storage(const c10::Storage& storage, int64_t offset, at::IntArrayRef sizes,
                           at::ScalarType dtype) {
  const auto key = c10::computeDispatchKey(dtype, at::kStrided, storage.device());
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(dtype));
  view.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  view.unsafeGetTensorImpl()->set_storage_offset(offset);
  return view;
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto begin = [](const at::Tensor& tensor) {
    return static_cast<const char*>(tensor.const_data_ptr());
  };
  return begin(a) < begin(b) + b.nbytes() && begin(b) < begin(a) + a.nbytes();
}

}  // namespace fsdp
