#include <nn/models.h>
#include <strategies/build_model.h>
#include <strategies/workload.h>

#include <utility>

namespace fsdp {
namespace {

// The batch of the step that was asked for last.
struct BatchOfStep {
  int64_t step{-1};
  Batch batch;
};

// A tensor on the meta device that keeps `tensor` alive, as views of it would.
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

at::Tensor to_device_of(const Module& model, const at::Tensor& tensor) {
  const auto parameters = model.parameters();
  const auto device = parameters.empty() ? at::kCPU : parameters.front().device().type();
  return device == at::kMeta ? twin_on_meta(tensor) : on_device(tensor, device);
}

Workload language_modeling(const TrainConfig& config, std::shared_ptr<const Dataset> dataset) {
  const auto kept = std::make_shared<BatchOfStep>();
  const auto loss = [=, rows = config.batch, seq = config.seq](Module& model, int part, int parts,
                                                               int64_t step) {
    if (kept->step != step) {
      kept->batch = {};  // before the next one takes memory
      *kept = {step, dataset->batch(step, rows, seq)};
    }
    const Batch own = kept->batch.part(part, parts);
    return language_model_loss(model, to_device_of(model, own.inputs),
                               to_device_of(model, own.targets));
  };
  return {[config] { return build_model(config); }, loss};
}

}  // namespace fsdp
