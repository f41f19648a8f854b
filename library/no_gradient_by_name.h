#pragma once

#include <base/torch.h>

#include <string>

namespace fsdp {

// While this object lives, autograd::grad() of `leaf`, and backward() with `leaf` in `inputs`,
// throw std::logic_error, which names `parameter`, before they run. The loss is computed from the
// module's parameter, so autograd would not find the leaf: it reports a tensor that is not used or,
// with allow_unused, returns no gradient.
class NoGradientByName {
 public:
  NoGradientByName(const at::Tensor& leaf, const std::string& parameter);
  ~NoGradientByName();
  NoGradientByName(const NoGradientByName&) = delete;

 private:
  // Torch knows the leaf by this node. It is kept, because torch makes it at a first use alone.
  std::shared_ptr<torch::autograd::Node> accumulator_;
};

// Throws the error for a parameter: "autograd::grad() of parameter W, which is sharded, ...".
[[noreturn]] void refuse_gradient_by_name(const std::string& parameter);

}  // namespace fsdp
