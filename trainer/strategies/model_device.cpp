#include <data/dataset.h>
#include <strategies/model_device.h>

#include <utility>

namespace fsdp {
namespace {

// Returns a tensor on the meta device with the sizes and strides of `tensor`. It keeps `tensor`
// alive, as a view of `tensor` would.
at::Tensor twin_on_meta(const at::Tensor& tensor) {
  c10::DataPtr data(
      nullptr, new at::Tensor(tensor), [](void* held) { delete static_cast<at::Tensor*>(held); },
      c10::Device(at::kMeta));
  at::Tensor twin = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), std::move(data)),
      c10::DispatchKeySet(c10::DispatchKey::Meta), tensor.dtype());
  twin.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  twin.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return twin;
}

}  // namespace

void move_buffers(const torch::nn::Module& model, c10::DeviceType device) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& buffer : model.buffers())
    if (buffer.device().type() != device) buffer.set_data(buffer.to(device));
}

at::Tensor to_device_of(const Module& model, const at::Tensor& tensor) {
  const auto parameters = model.parameters();
  const auto device = parameters.empty() ? at::kCPU : parameters.front().device().type();
  return device == at::kMeta ? twin_on_meta(tensor) : on_device(tensor, device);
}

}  // namespace fsdp
