#include <nn/models.h>
#include <strategies/build_model.h>
#include <strategies/data_of_run.h>
#include <trace/module_spans.h>

namespace fsdp {

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

}  // namespace fsdp
