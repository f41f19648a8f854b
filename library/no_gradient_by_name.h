#pragma once

#include <base/torch.h>

#include <string>

namespace fsdp {

// While this object lives, autograd::grad() of `leaf`, and backward() with `leaf` in `inputs`,
// throw std::logic_error, which names `parameter`, before the pass runs. The loss is computed from
// the module's parameter, so without this error autograd would not find the leaf: it would report a
// tensor that is not used or, with allow_unused, return no gradient.
class NoGradientByName {
 public:
  NoGradientByName(const at::Tensor& leaf, const std::string& parameter);
  ~NoGradientByName();
  NoGradientByName(const NoGradientByName&) = delete;

 private:
  // The leaf's AccumulateGrad node, by which a pass refers to the leaf. It is kept alive, because
  // torch refers to it weakly and would make another one.
  std::shared_ptr<torch::autograd::Node> accumulator_;
};

// Throws the error for a parameter: "autograd::grad() of parameter W, which is sharded, ...".
[[noreturn]] void refuse_gradient_by_name(const std::string& parameter);

}  // namespace fsdp
