#include <backward_hooks_impl.h>

namespace fsdp {

void BackwardHooksImpl::set_requires_gradient_sync(bool sync) {
  requires_gradient_sync_ = sync;
}

// Reduces all units, as the end of a backward pass does if the pass has reduced none.
void BackwardHooksImpl::sync_gradients() {
  drop_broken_passes();
  const bool sync = requires_gradient_sync_;
  requires_gradient_sync_ = true;
  end_outermost_pass(/*graph_is_kept=*/true);
  requires_gradient_sync_ = sync;
}

}  // namespace fsdp
