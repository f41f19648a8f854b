#include <nn/layers.h>

#include <torch/csrc/autograd/custom_function.h>
#include <cmath>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Computes x W^T, with a gradient of W that is not a view. The gradient of W that at::linear
// computes is a view, so autograd adds to it out of place: if W is tied to an embedding, three
// gradients of W's size are alive at once.
struct Product : torch::autograd::Function<Product> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight) {
    context->save_for_backward({x, weight});
    return at::linear(x, weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1];
    const auto rows = gradients[0].flatten(0, -2);
    variable_list result(2);
    if (context->needs_input_grad(0)) result[0] = rows.mm(weight).view(x.sizes());
    if (context->needs_input_grad(1)) result[1] = rows.t().mm(x.flatten(0, -2));
    return result;
  }
};

}  // namespace

Linear::Linear(const at::Tensor& weight, const at::Tensor& bias)
    : weight_(register_parameter("weight", weight)) {
  if (bias.defined()) bias_ = register_parameter("bias", bias);
}

torch::Tensor Linear::forward(torch::Tensor x) {
  const auto dtype = weight_.scalar_type();
  x = x.to(dtype);
  return with_lora(
      x, bias_.defined() ? at::linear(x, weight_, bias_.to(dtype)) : Product::apply(x, weight_));
}

Embedding::Embedding(const at::Tensor& weight) : weight_(register_parameter("weight", weight)) {}

torch::Tensor Embedding::forward(torch::Tensor ids) {
  return at::embedding(weight_, ids);
}

at::Tensor truncated_normal(at::IntArrayRef sizes, double std) {
  const double bound = std::erf(3.0 / std::sqrt(2.0));
  return torch::empty(sizes)
      .uniform_(-bound, bound)
      .erfinv_()
      .mul_(std * std::sqrt(2.0))
      .clamp_(-3 * std, 3 * std);
}

}  // namespace fsdp
