#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

using torch::autograd::PostAccumulateGradHook;

// Holds all hooks of one parameter, because LibTorch stores only one hook object for each
// parameter.
class GradientHooks : public PostAccumulateGradHook {
 public:
  using Hook = std::shared_ptr<const std::function<void()>>;

  // `others`: the hook object that another library, such as PyTorch for Python, has registered
  // before; or null.
  explicit GradientHooks(std::unique_ptr<PostAccumulateGradHook> others)
      : others_(std::move(others)) {}

  void operator()(const at::Tensor& parameter) override {
    if (others_) (*others_)(parameter);
    const auto hooks = *hooks_;  // a copy, because a hook may remove or register hooks
    std::exception_ptr thrown;
    for (const Hook& hook : hooks) {
      try {
        if (parameter.grad().defined()) (*hook)();
      } catch (...) {
        if (!thrown) thrown = std::current_exception();
      }
    }
    if (thrown) std::rethrow_exception(thrown);
  }

  const std::shared_ptr<std::vector<Hook>>& hooks() const { return hooks_; }

 private:
  std::unique_ptr<PostAccumulateGradHook> others_;
  std::shared_ptr<std::vector<Hook>> hooks_ = std::make_shared<std::vector<Hook>>();
};

GradientHooks& hooks_of(const at::Tensor& parameter) {
  // A parameter that was never trainable has no autograd metadata yet; this call creates it.
  torch::autograd::impl::materialize_autograd_meta(parameter);
  auto& place = torch::autograd::impl::post_acc_grad_hooks(parameter);
  auto* ours = dynamic_cast<GradientHooks*>(place.get());
  if (ours == nullptr) {
    auto made = std::make_unique<GradientHooks>(std::move(place));
    ours = made.get();
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::move(made));
  }
  return *ours;
}

}  // namespace

std::function<void()> register_post_accumulate_grad_hook(const at::Tensor& parameter,
                                                         std::function<void()> ready) {
  const auto& hooks = hooks_of(parameter).hooks();
  const auto hook = std::make_shared<const std::function<void()>>(std::move(ready));
  hooks->push_back(hook);
  return [hooks = std::weak_ptr(hooks), hook = std::weak_ptr(hook)] {
    if (const auto alive = hooks.lock()) std::erase(*alive, hook.lock());
  };
}

}  // namespace fsdp
