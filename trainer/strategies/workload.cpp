#include <data/dataset.h>
#include <nn/models.h>
#include <strategies/workload.h>
#include <trace/module_spans.h>

#include <algorithm>
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

std::shared_ptr<Dataset> make_dataset(const TrainConfig& config) {
  if (config.data == "published") return make_published_dataset(vocabulary_of(config), config.seed);
  if (config.data == "modular") return make_modular_dataset(config.modulus, config.seed);
  if (config.data == "pattern") return make_pattern_dataset(vocabulary_of(config), config.seed);
  if (config.data == "tokens")
    return make_token_dataset(config.tokens, vocabulary_of(config), config.seed);
  return std::make_shared<TextDataset>(text_of(config), config.seed);
}

Text text_of(const TrainConfig& config) {
  return config.text_content ? config.text_content : read_text_files(config.text);
}

std::string describe_data(const TrainConfig& config) {
  if (config.data == "published") return "published recipe";
  if (config.data == "modular") return "addition modulo " + std::to_string(config.modulus);
  return config.data;
}

int64_t vocabulary_of(const TrainConfig& config) {
  if (config.vocabulary > 0) return config.vocabulary;
  const int64_t own = model_info(config.model).vocabulary;
  if (config.data != "text" && config.data != "modular") return own;
  return std::max(own, config.data == "modular" ? config.modulus + 1 : 256);  // text is bytes
}

std::shared_ptr<Module> build_model(const TrainConfig& config) {
  torch::manual_seed(config.seed);
  auto model = make_model(config.model, vocabulary_of(config));
  record_module_spans(*model);
  return model;
}

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
