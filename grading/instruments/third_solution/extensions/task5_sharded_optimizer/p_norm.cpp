#include <sharded_optimizer.h>

#include <cmath>

namespace fsdp {

double ShardedOptimizer::clip_grad_norm(double max_norm, double norm_type) {
  check_norm_type(norm_type);
  if (norm_type == 2) return clip_grad_norm(max_norm);
  at::Tensor own = zero_sum(1);
  for (const at::Tensor& gradient : gradients())
    own = at::maximum(own, largest_magnitude(gradient));
  const at::Tensor of_ranks = zero_sum(comm_->world_size());
  comm_->all_gather_into(of_ranks, own, kNorm).wait();
  const auto largest = of_ranks.max().item<double>();

  at::Tensor sum = zero_sum(kDigits);
  if (std::isfinite(norm_type)) {
    for (const at::Tensor& gradient : gradients())
      sum += sum_of_powers(gradient, norm_type, largest);
    sum = summed(sum);
  }
  return scale_gradients(max_norm, p_norm(norm_type, largest, sum));
}

}  // namespace fsdp
