#include <sharded_optimizer_impl.h>

#include <cmath>

namespace fsdp {
namespace {

// Returns the largest magnitude in the gradients of all ranks. Its tensors are freed on return, so
// that the peak of clipping does not depend on whether gradients are scaled afterwards.
double largest_of_all_ranks(const std::vector<at::Tensor>& gradients, Communicator& comm) {
  const auto options = at::TensorOptions(at::kDouble).device(comm.device());
  at::Tensor own = at::zeros({1}, options);
  for (const at::Tensor& gradient : gradients)
    own = at::maximum(own, largest_magnitude(gradient));
  const at::Tensor all = at::empty({comm.world_size()}, options);
  comm.all_gather_into(all, own, kNorm).wait();
  return all.max().item<double>();
}

}  // namespace

double ShardedOptimizerImpl::clip_grad_norm(double max_norm, double norm_type) {
  check_norm_type(norm_type);
  if (norm_type == 2) return clip_grad_norm(max_norm);
  std::vector<at::Tensor> gradients;
  for (const auto& unit : units_)
    if (unit->sharded_gradient().defined()) gradients.push_back(unit->sharded_gradient());
  at::Tensor total = at::zeros({kDigits}, at::TensorOptions(at::kDouble).device(comm_->device()));
  const double largest = largest_of_all_ranks(gradients, *comm_);
  if (std::isfinite(norm_type)) {
    for (const at::Tensor& gradient : gradients)
      total += sum_of_powers(gradient, norm_type, largest);
    comm_->all_reduce(total, kNorm).wait();
  }
  return clip(max_norm, p_norm(norm_type, largest, total));
}

}  // namespace fsdp
