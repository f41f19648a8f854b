#include <forward_hooks.h>

namespace fsdp {

void register_forward_hooks(Module& module, std::shared_ptr<FlatParameter> unit,
                            bool reshard_after_forward) {
  // The number of running calls of the module; more than 1 if the module calls itself.
  auto depth = std::make_shared<int>(0);
  module.register_forward_pre_hook([unit, depth](Module&, const at::Tensor&) {
    ++*depth;
    unit->unshard();
    return at::Tensor();
  });
  module.register_forward_hook(
      [unit, depth, reshard_after_forward](Module&, const at::Tensor& output) {
        if (*depth > 0) --*depth;
        const bool stays = !reshard_after_forward && output.defined() && at::GradMode::is_enabled();
        if (*depth == 0 && !stays) unit->reshard();
        return at::Tensor();
      },
      /*always_call=*/true);
}

}  // namespace fsdp
