#include <forward_hooks.h>

namespace fsdp {

void register_forward_hooks(Module& module, std::shared_ptr<FlatParameter> unit,
                            bool reshard_after_forward) {
  module.register_forward_pre_hook([unit](Module&, const torch::Tensor&) {
    unit->unshard();
    return torch::Tensor();
  });
  module.register_forward_hook(
      [unit, reshard_after_forward](Module&, const torch::Tensor& output) {
        const bool threw = !output.defined();
        if (reshard_after_forward || threw || !at::GradMode::is_enabled()) unit->reshard();
        return torch::Tensor();
      },
      /*always_call=*/true);
}

}  // namespace fsdp
