#include <sharded_optimizer.h>

#include <algorithm>
#include <cmath>

namespace fsdp {

double ShardedOptimizer::clip_grad_norm(double max_norm, double norm_type) {
  check_norm_type(norm_type);
  if (norm_type == 2) return clip_grad_norm(max_norm);
  at::NoGradGuard no_grad;
  const auto options = at::TensorOptions(at::kDouble).device(comm_->device());
  std::vector<at::Tensor> magnitudes{at::zeros({1}, options)};
  std::vector<at::Tensor> sums{at::zeros({kDigits}, options)};
  for (const at::Tensor& gradient : gradients())
    magnitudes.push_back(largest_magnitude(gradient));
  const at::Tensor of_ranks = at::zeros({comm_->world_size()}, options);
  comm_->all_gather_into(of_ranks, at::cat(magnitudes).max().reshape({1}), kNorm).wait();
  const auto largest = of_ranks.max().item<double>();
  for (const at::Tensor& gradient : gradients())
    sums.push_back(sum_of_powers(gradient, norm_type, largest));
  const at::Tensor sum = at::stack(sums).sum(0);
  if (!std::isinf(norm_type)) comm_->all_reduce(sum, kNorm).wait();
  const double norm = p_norm(norm_type, largest, sum);
  for (const at::Tensor& gradient : gradients())
    gradient.mul_(std::min(1.0, max_norm / (norm + 1e-6)));
  return norm;
}

}  // namespace fsdp
