#include <backward_hooks.h>

#include <ranges>

namespace fsdp {

void BackwardHooks::set_requires_gradient_sync(bool sync) {
  sync_ = sync;
}

void BackwardHooks::sync_gradients() {
  drop_broken_pass();
  Pass reductions(-1);  // the engine numbers its passes from 0
  for (const auto& unit : units_ | std::views::reverse) {
    if (unit->flat->trainable()) reductions.reduce(unit->flat);
  }
  reductions.wait();
  if (on_end_) on_end_();
}

}  // namespace fsdp
