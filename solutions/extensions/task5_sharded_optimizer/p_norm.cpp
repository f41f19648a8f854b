#include <sharded_optimizer_impl.h>

#include <cmath>

namespace fsdp {

double ShardedOptimizerImpl::clip_grad_norm(double max_norm, double norm_type) {
  check_norm_type(norm_type);
  if (norm_type == 2) return clip_grad_norm(max_norm);
  const auto options = at::TensorOptions(at::kDouble).device(comm_->device());
  at::Tensor own = at::zeros({1}, options);
  for (const auto& unit : units_) {
    if (!unit->sharded_gradient().defined()) continue;
    own = at::maximum(own, largest_magnitude(unit->sharded_gradient()));
  }
  const at::Tensor all = at::empty({comm_->world_size()}, options);
  comm_->all_gather_into(all, own, kNorm).wait();
  const auto largest = all.max().item<double>();
  at::Tensor total = at::zeros({kDigits}, options);
  if (std::isfinite(norm_type)) {
    for (const auto& unit : units_) {
      if (!unit->sharded_gradient().defined()) continue;
      total += sum_of_powers(unit->sharded_gradient(), norm_type, largest);
    }
    comm_->all_reduce(total, kNorm).wait();
  }
  return clip(max_norm, p_norm(norm_type, largest, total));
}

}  // namespace fsdp
