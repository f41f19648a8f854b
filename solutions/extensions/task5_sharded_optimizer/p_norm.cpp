#include <sharded_optimizer_impl.h>

#include <cmath>

namespace fsdp {

double ShardedOptimizerImpl::clip_grad_norm(double max_norm, double norm_type) {
  check_norm_type(norm_type);
  if (norm_type == 2) return clip_grad_norm(max_norm);
  std::vector<at::Tensor> gradients;
  for (const auto& unit : units_)
    if (unit->sharded_gradient().defined()) gradients.push_back(unit->sharded_gradient());
  const auto options = at::TensorOptions(at::kDouble).device(comm_->device());
  at::Tensor total = at::zeros({kDigits}, options);
  at::Tensor own = at::zeros({1}, options);
  for (const at::Tensor& gradient : gradients)
    own = at::maximum(own, largest_magnitude(gradient));
  const at::Tensor all = at::empty({comm_->world_size()}, options);
  comm_->all_gather_into(all, own, kNorm).wait();
  const auto largest = all.max().item<double>();
  if (std::isfinite(norm_type)) {
    for (const at::Tensor& gradient : gradients)
      total += sum_of_powers(gradient, norm_type, largest);
    comm_->all_reduce(total, kNorm).wait();
  }
  return clip(max_norm, p_norm(norm_type, largest, total));
}

}  // namespace fsdp
