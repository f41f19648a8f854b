#include <backward_hooks.h>
#include <base/todo.h>

namespace fsdp {

void BackwardHooks::set_requires_gradient_sync(bool sync) {
  todo("BackwardHooks::set_requires_gradient_sync", "4.5");
}

void BackwardHooks::sync_gradients() {
  todo("BackwardHooks::sync_gradients", "4.5");
}

}  // namespace fsdp
