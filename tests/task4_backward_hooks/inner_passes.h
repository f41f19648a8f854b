#pragma once

#include <nn/module.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>

// This file has examples of user code whose backward pass runs another backward pass inside.
namespace fsdp {

using Step = std::function<at::Tensor(const at::Tensor& x)>;

struct HeldStep : torch::CustomClassHolder {
  explicit HeldStep(Step function) : run(std::move(function)) {}
  Step run;
};

// A user's own checkpoint: runs `step` without gradients in forward, and again in backward, with
// gradients and an inner backward().
struct CheckpointByHand : torch::autograd::Function<CheckpointByHand> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Step& step) {
    context->save_for_backward({x});
    context->saved_data["step"] = c10::IValue::make_capsule(c10::make_intrusive<HeldStep>(step));
    return step(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto held = context->saved_data["step"].toCapsule();
    const at::AutoGradMode with_gradients(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    static_cast<HeldStep&>(*held).run(x).backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

inline at::Tensor by_hand(const at::Tensor& x, const Step& step) {
  return CheckpointByHand::apply(x, step);
}

// Returns an approximate solution z of z = f(z + x), as an implicit layer does: after two calls of
// f without gradients comes one with gradients. In backward, a hook replaces the gradient of z. For
// this it computes gradients of one more call of f.
inline at::Tensor implicit_layer(Module& f, const at::Tensor& x) {
  at::Tensor start = at::zeros_like(x);
  {
    const at::NoGradGuard no_grad;
    for (int i = 0; i < 2; ++i)
      start = f(start + x);
  }
  const at::Tensor z = f(start + x);
  const at::Tensor at_solution = z.detach().requires_grad_();
  const at::Tensor again = f(at_solution + x.detach());
  z.register_hook([=](const at::Tensor& gradient) {
    at::Tensor solved = gradient;
    for (int i = 0; i < 3; ++i)
      solved = gradient + torch::autograd::grad({again}, {at_solution}, {solved},
                                                /*retain_graph=*/true)[0];
    return solved;
  });
  return z;
}

}  // namespace fsdp
