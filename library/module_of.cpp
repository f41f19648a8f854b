#include <module_of.h>

#include <stdexcept>

namespace fsdp {

torch::Tensor NonTensorModule::forward(torch::Tensor input) {
  throw std::logic_error(name() + " is called with one tensor, but has another shape; " +
                         "call it by its own type, with all its inputs");
}

void NonTensorModule::set_forward(Forward forward) {
  throw std::logic_error(name() + " does not take one tensor and return one, so its forward() " +
                         "can't be replaced, as by checkpoint_activations(); " +
                         "checkpoint modules of one tensor inside it");
}

}  // namespace fsdp
