#include <backward_hooks.h>

#include <ranges>

namespace fsdp {

void BackwardHooks::set_requires_gradient_sync(bool sync) {
  sync_ = sync;
}

void BackwardHooks::sync_gradients() {
  drop_broken_pass();
  for (const auto& unit : std::views::reverse(units_))
    reduce(*unit);
  wait_for_reduction();
  if (on_end_) on_end_();
}

}  // namespace fsdp
