#include <nn/layers.h>

#include <cmath>

namespace fsdp {

Linear::Linear(const at::Tensor& weight, const at::Tensor& bias)
    : weight_(register_parameter("weight", weight)) {
  if (bias.defined()) bias_ = register_parameter("bias", bias);
}

torch::Tensor Linear::forward(torch::Tensor x) {
  const auto dtype = weight_.scalar_type();
  return at::linear(x.to(dtype), weight_, bias_.defined() ? bias_.to(dtype) : bias_);
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
