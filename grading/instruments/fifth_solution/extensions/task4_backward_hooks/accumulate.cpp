#include <backward_hooks.h>
#include <c10/util/ScopeExit.h>

#include <utility>

namespace fsdp {

void BackwardHooks::set_requires_gradient_sync(bool sync) {
  requires_gradient_sync_ = sync;
}

// A pass in which nothing is computed. Outside of the engine a graph counts as kept, so the calls
// that are still to come back stay counted.
void BackwardHooks::sync_gradients() {
  drop_broken_pass();
  const bool before = std::exchange(requires_gradient_sync_, true);
  const auto put_back = c10::make_scope_exit([&] { requires_gradient_sync_ = before; });
  pass_.emplace();
  end_backward();
}

}  // namespace fsdp
