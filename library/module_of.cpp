#include <module_of.h>

#include <stdexcept>

namespace fsdp {

torch::Tensor NonTensorModule::forward(torch::Tensor input) {
  throw std::logic_error(name() + " is called with one tensor, but has another shape; " +
                         "call it by its own type, with all its inputs");
}

void NonTensorModule::set_forward(Forward forward) {
  throw std::logic_error(name() + " does not take one tensor and return one, so its forward() " +
                         "can't be replaced; pass it to checkpoint_activations() by its own type");
}

void checkpoint_activations(NonTensorModule& module) {
  const std::string reason = module.reason_not_to_repeat();
  if (!reason.empty())
    throw std::logic_error("checkpoint_activations: " + module.name() + ": " + reason);
  module.is_checkpointed_ = true;
}

}  // namespace fsdp
