#include <forward_hooks.h>

#include <utility>

namespace fsdp {
namespace {

// What a unit does around the forward of its module. It remembers nothing of a call, so calls may
// repeat, nest and throw.
class AroundForward {
 public:
  AroundForward(std::shared_ptr<FlatParameter> unit, bool reshard_after_forward)
      : unit_(std::move(unit)), reshard_after_forward_(reshard_after_forward) {}

  void enter() const { unit_->unshard(); }

  void leave(const torch::Tensor& output) const {
    const bool threw = !output.defined();
    const bool backward_follows = at::GradMode::is_enabled() && !threw;
    if (reshard_after_forward_ || !backward_follows) unit_->reshard();
  }

 private:
  std::shared_ptr<FlatParameter> unit_;
  bool reshard_after_forward_;
};

}  // namespace

void register_forward_hooks(Module& module, std::shared_ptr<FlatParameter> unit,
                            bool reshard_after_forward) {
  const AroundForward around(std::move(unit), reshard_after_forward);
  module.register_forward_pre_hook([around](Module&, const torch::Tensor&) {
    around.enter();
    return torch::Tensor();
  });
  module.register_forward_hook(
      [around](Module&, const torch::Tensor& output) {
        around.leave(output);
        return torch::Tensor();
      },
      /*always_call=*/true);
}

}  // namespace fsdp
