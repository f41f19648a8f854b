#include <norms_over_ranks.h>
#include <optim/p_norm.h>

#include <cmath>

namespace fsdp {
namespace {

// Stands in place of the largest magnitude of a tensor's elements if no rank has the tensor. No
// magnitude equals it, because magnitudes are at least 0.
constexpr double kAbsent = -1;

// Collective. Returns, for each of the P `parts`, the largest magnitude of the whole tensor over
// all ranks, or kAbsent if no rank has the tensor: [P]. If only_existence is set, returns zeros in
// place of the magnitudes.
at::Tensor largest_over_ranks(const std::vector<NamedPart>& parts, Communicator& comm,
                              bool only_existence) {
  const auto count = static_cast<int64_t>(parts.size());
  const auto options = at::TensorOptions(at::kDouble).device(comm.device());
  const at::Tensor own = at::full({count}, kAbsent, options);
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor& part = parts[i].part;
    if (!part.defined()) continue;
    own[i].copy_(only_existence ? at::zeros({}, at::kDouble) : largest_magnitude(part)[0]);
  }
  const at::Tensor all = at::empty({comm.world_size() * count}, options);
  comm.all_gather_into(all, own, kNorm).wait();
  return all.view({comm.world_size(), count}).amax(0).cpu();
}

}  // namespace

std::vector<NamedPart> gradients_of(const std::vector<NamedParameter>& parameters) {
  std::vector<NamedPart> gradients;
  for (const auto& [name, parameter] : parameters)
    gradients.push_back({name, parameter.grad()});
  return gradients;
}

Norms norms_over_ranks(const std::vector<NamedPart>& parts, Communicator& comm, double norm_type) {
  check_norm_type(norm_type);
  const auto count = static_cast<int64_t>(parts.size());
  if (count == 0) return Norms();
  const at::Tensor largest = largest_over_ranks(parts, comm, /*only_existence=*/norm_type == 2);
  const auto* magnitudes = largest.const_data_ptr<double>();
  at::Tensor sums =
      at::zeros({count, kDigits}, at::TensorOptions(at::kDouble).device(comm.device()));
  for (int64_t i = 0; i < count && std::isfinite(norm_type); ++i) {
    const at::Tensor& part = parts[i].part;
    if (!part.defined()) continue;
    sums[i].copy_(norm_type == 2 ? sum_of_squares(part)
                                 : sum_of_powers(part, norm_type, magnitudes[i]));
  }
  if (std::isfinite(norm_type)) comm.all_reduce(sums, kNorm).wait();
  sums = sums.cpu();
  Norms norms;
  for (int64_t i = 0; i < count; ++i) {
    if (magnitudes[i] == kAbsent) continue;
    norms.insert(parts[i].name, norm_type == 2 ? std::sqrt(value_of_sum(sums[i]))
                                               : p_norm(norm_type, magnitudes[i], sums[i]));
  }
  return norms;
}

Norms norms_of(const std::vector<NamedPart>& tensors, double norm_type) {
  check_norm_type(norm_type);
  Norms norms;
  for (const auto& [name, tensor] : tensors)
    if (tensor.defined()) norms.insert(name, p_norm({tensor}, norm_type));
  return norms;
}

bool finite_on_all_ranks(const std::vector<NamedPart>& tensors, Communicator& comm) {
  int64_t broken = 0;
  for (const auto& [name, tensor] : tensors)
    if (tensor.defined() && !at::isfinite(tensor).all().item<bool>()) ++broken;
  const at::Tensor all = at::full({1}, static_cast<double>(broken),
                                  at::TensorOptions(at::kDouble).device(comm.device()));
  comm.all_reduce(all, kNorm).wait();
  if (const auto replicas = comm.replicas()) replicas->all_reduce(all, kNorm).wait();
  return all.item<double>() == 0;
}

}  // namespace fsdp
