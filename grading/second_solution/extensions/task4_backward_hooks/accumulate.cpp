#include <backward_hooks.h>

#include <algorithm>

namespace fsdp {

void BackwardHooks::set_requires_gradient_sync(bool sync) {
  sync_ = sync;
}

void BackwardHooks::sync_gradients() {
  drop_broken_pass();
  std::for_each(units_.rbegin(), units_.rend(), [this](const auto& unit) { reduce(*unit); });
  for (const auto& unit : units_)
    unit->reduced = false;
  finish();
}

}  // namespace fsdp
