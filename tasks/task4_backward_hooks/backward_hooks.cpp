#include <backward_hooks.h>
#include <base/todo.h>
#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

namespace fsdp {

void BackwardHooks::add(Module& module, std::shared_ptr<FlatParameter> flat) {
  todo("BackwardHooks::add", "4.1");
}

void BackwardHooks::begin() {
  todo("BackwardHooks::begin", "4.4");
}

void BackwardHooks::finish(Unit& unit) {
  todo("BackwardHooks::finish", "4.2");
}

void BackwardHooks::wait_for_reduction() {
  todo("BackwardHooks::wait_for_reduction", "4.2");
}

void BackwardHooks::end() {
  todo("BackwardHooks::end", "4.4");
}

}  // namespace fsdp
