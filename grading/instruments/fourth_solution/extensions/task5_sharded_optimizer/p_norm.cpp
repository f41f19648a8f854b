#include <sharded_optimizer.h>

#include <cmath>

namespace fsdp {

double ShardedOptimizer::clip_grad_norm(double max_norm, double norm_type) {
  check_norm_type(norm_type);
  if (norm_type == 2) return clip_grad_norm(max_norm);
  const at::NoGradGuard no_grad;
  const double largest = largest_magnitude_of_all();
  const at::Tensor sum = sum_over_gradients(
      [&](const at::Tensor& gradient) { return sum_of_powers(gradient, norm_type, largest); });
  if (!std::isinf(norm_type)) comm_->all_reduce(sum, kNorm).wait();
  return clip(p_norm(norm_type, largest, sum), max_norm);
}

// maximum() and max() pass on NaN.
double ShardedOptimizer::largest_magnitude_of_all() const {
  const auto options = at::dtype(at::kDouble).device(comm_->device());
  at::Tensor own = at::zeros({1}, options);
  for (const at::Tensor& gradient : gradients())
    own = at::maximum(own, largest_magnitude(gradient));
  const at::Tensor all = at::empty({comm_->world_size()}, options);
  comm_->all_gather_into(all, own, kNorm).wait();
  return all.max().item<double>();
}

}  // namespace fsdp
