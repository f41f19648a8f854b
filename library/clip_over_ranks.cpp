#include <clip_over_ranks.h>
#include <optim/clip_grad_norm.h>
#include <optim/p_norm.h>

#include <cmath>

namespace fsdp {
namespace {

double norm_over_ranks(const std::vector<at::Tensor>& gradients, Communicator& comm,
                       double norm_type) {
  const auto options = at::TensorOptions(at::kDouble).device(comm.device());
  at::Tensor total = at::zeros({kDigits}, options);
  if (norm_type == 2) {
    for (const at::Tensor& gradient : gradients)
      total += sum_of_squares(gradient);
    comm.all_reduce(total, kNorm).wait();
    return std::sqrt(value_of_sum(total));
  }
  at::Tensor own = at::zeros({1}, options);
  for (const at::Tensor& gradient : gradients)
    own = at::maximum(own, largest_magnitude(gradient));
  const at::Tensor all = at::empty({comm.world_size()}, options);
  comm.all_gather_into(all, own, kNorm).wait();
  const auto largest = all.max().item<double>();
  if (std::isfinite(norm_type)) {
    for (const at::Tensor& gradient : gradients)
      total += sum_of_powers(gradient, norm_type, largest);
    comm.all_reduce(total, kNorm).wait();
  }
  return p_norm(norm_type, largest, total);
}

}  // namespace

double clip_over_ranks(const std::vector<at::Tensor>& gradients, Communicator& comm,
                       double max_norm, double norm_type) {
  check_norm_type(norm_type);
  const double norm = norm_over_ranks(gradients, comm, norm_type);
  scale_to_max_norm(gradients, max_norm, norm);
  return norm;
}

}  // namespace fsdp
