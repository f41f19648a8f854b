#include <backward_hooks.h>
#include <base/todo.h>
#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <stdexcept>

namespace fsdp {

void BackwardHooks::add(Module& module, std::shared_ptr<FlatParameter> flat) {
  todo("BackwardHooks::add", "4.1");
}

void BackwardHooks::begin_backward() {
  todo("BackwardHooks::begin_backward", "4.4");
}

void BackwardHooks::post_backward(Unit& unit) {
  todo("BackwardHooks::post_backward", "4.2");
}

void BackwardHooks::wait_for_reduction() {
  todo("BackwardHooks::wait_for_reduction", "4.2");
}

void BackwardHooks::end_backward() {
  todo("BackwardHooks::end_backward", "4.4");
}

}  // namespace fsdp
