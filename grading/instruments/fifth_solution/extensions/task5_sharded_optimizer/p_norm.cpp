#include <optim/p_norm.h>
#include <sharded_optimizer.h>

#include <cmath>
#include <functional>

namespace fsdp {

double ShardedOptimizer::clip_grad_norm(double max_norm, double norm_type) {
  check_norm_type(norm_type);
  if (norm_type == 2) return clip_grad_norm(max_norm);

  const at::TensorOptions options = at::dtype(at::kDouble).device(comm_->device());
  const auto for_each_gradient = [&](const std::function<void(const at::Tensor&)>& use) {
    for (const auto& unit : units_)
      if (unit->sharded_gradient().defined()) use(unit->sharded_gradient());
  };

  at::Tensor mine = at::zeros({1}, options);
  for_each_gradient(
      [&](const at::Tensor& gradient) { mine = at::maximum(mine, largest_magnitude(gradient)); });
  const at::Tensor of_all = at::empty({comm_->world_size()}, options);
  comm_->all_gather_into(of_all, mine, kNorm).wait();
  const double largest = of_all.max().item<double>();

  const at::Tensor sum = at::zeros({kDigits}, options);
  if (std::isfinite(norm_type)) {
    for_each_gradient(
        [&](const at::Tensor& gradient) { sum.add_(sum_of_powers(gradient, norm_type, largest)); });
    comm_->all_reduce(sum, kNorm).wait();
  }
  const double norm = p_norm(norm_type, largest, sum);
  scale_gradients(max_norm, norm);
  return norm;
}

}  // namespace fsdp
