#include <forward_hooks.h>

namespace fsdp {

void register_forward_hooks(Module& module, std::shared_ptr<FlatParameter> unit,
                            bool reshard_after_forward) {
  module.register_forward_pre_hook([unit](Module&, const at::Tensor&) {
    unit->unshard();
    return at::Tensor();  // the input stays as it is
  });
  module.register_forward_hook(
      [unit, reshard_after_forward](Module&, const at::Tensor& output) {
        // After an exception the output is undefined.
        const bool backward_follows = output.defined() && at::GradMode::is_enabled();
        if (reshard_after_forward || !backward_follows) unit->reshard();
        return at::Tensor();
      },
      /*always_call=*/true);  // otherwise a unit that an exception left would stay unsharded
}

}  // namespace fsdp
