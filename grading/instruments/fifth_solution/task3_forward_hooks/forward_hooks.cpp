#include <forward_hooks.h>

#include <utility>

namespace fsdp {

void register_forward_hooks(Module& module, std::shared_ptr<FlatParameter> unit,
                            bool reshard_after_forward) {
  constexpr auto kAsItWas = [] { return torch::Tensor(); };  // neither input nor output changes

  module.register_forward_pre_hook([unit, kAsItWas](Module&, const torch::Tensor&) {
    unit->unshard();
    return kAsItWas();
  });

  // After an exception the output is undefined.
  const auto backward_follows = [](const torch::Tensor& output) {
    return output.defined() && at::GradMode::is_enabled();
  };
  module.register_forward_hook(
      [=](Module&, const torch::Tensor& output) {
        if (reshard_after_forward || !backward_follows(output)) unit->reshard();
        return kAsItWas();
      },
      /*always_call=*/true);
}

}  // namespace fsdp
