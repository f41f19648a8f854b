#include <optim/clip_grad_norm.h>
#include <optim/p_norm.h>

namespace fsdp {

void scale_to_max_norm(const std::vector<at::Tensor>& gradients, double max_norm, double norm) {
  const at::NoGradGuard no_grad;
  const double scale = max_norm / (norm + 1e-6);
  if (scale < 1.0)
    for (const at::Tensor& gradient : gradients)
      gradient.mul_(scale);
}

double clip_grad_norm(const std::vector<at::Tensor>& gradients, double max_norm, double norm_type) {
  check_norm_type(norm_type);
  const at::NoGradGuard no_grad;
  const double norm = p_norm(gradients, norm_type);
  scale_to_max_norm(gradients, max_norm, norm);
  return norm;
}

}  // namespace fsdp
