#include <adapted.h>
#include <torch/nn/modules/embedding.h>

namespace fsdp {

void share_registrations(torch::nn::Module& self, const torch::nn::Module& theirs) {
  for (const auto& parameter : theirs.named_parameters(/*recurse=*/false))
    self.register_parameter(parameter.key(), parameter.value(), parameter.value().requires_grad());
  for (const auto& buffer : theirs.named_buffers(/*recurse=*/false))
    self.register_buffer(buffer.key(), buffer.value());
  for (const auto& child : theirs.named_children())
    self.register_module(child.key(), child.value());
}

bool reads_parameters_in_backward(const torch::nn::Module& theirs) {
  return dynamic_cast<const torch::nn::EmbeddingImpl*>(&theirs) == nullptr;
}

std::shared_ptr<Module> hookable(torch::nn::AnyModule module) {
  const auto theirs = module.ptr();
  if (auto ours = std::dynamic_pointer_cast<Module>(theirs)) return ours;
  return std::make_shared<WrappedModule<at::Tensor(at::Tensor)>>(
      theirs, [module](at::Tensor input) mutable { return module.forward(std::move(input)); });
}

}  // namespace fsdp
