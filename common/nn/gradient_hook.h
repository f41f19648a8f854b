#pragma once

#include <base/torch.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <memory>
#include <utility>

namespace fsdp {

// Calls `ready` once per backward pass, when all uses of the leaf `parameter` have been added up in
// its .grad: PyTorch's register_post_accumulate_grad_hook, which LibTorch has no function for. Does
// not call it while there is no .grad: a custom function may return an undefined gradient. A
// parameter has one such hook; a second call replaces the first.
inline void register_post_accumulate_grad_hook(const at::Tensor& parameter,
                                               std::function<void()> ready) {
  class Hook : public torch::autograd::PostAccumulateGradHook {
   public:
    explicit Hook(std::function<void()> ready) : ready_(std::move(ready)) {}
    void operator()(const at::Tensor& parameter) override {
      if (parameter.grad().defined()) ready_();
    }

   private:
    std::function<void()> ready_;
  };
  torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                 std::make_unique<Hook>(std::move(ready)));
}

}  // namespace fsdp
