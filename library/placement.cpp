#include <ATen/ExpandUtils.h>
#include <placement.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Collective. Returns the parts of all ranks, joined in the order of the ranks: [begins.back()].
// `part` has begins[rank + 1] - begins[rank] elements. It may have any dtype, because the ranks
// send bytes.
at::Tensor all_gather_parts(const at::Tensor& part, const std::vector<int64_t>& begins,
                            Communicator& comm, const std::string& parameter) {
  const auto world = static_cast<int64_t>(begins.size()) - 1;
  int64_t longest = 0;
  for (int64_t rank = 0; rank < world; ++rank)
    longest = std::max(longest, begins[rank + 1] - begins[rank]);
  if (longest == 0) return part.new_empty({0});
  const auto width = static_cast<int64_t>(part.element_size());
  const at::Tensor own = comm.empty(longest * width, at::kByte);
  own.view(part.scalar_type()).narrow(0, 0, part.numel()).copy_(part.reshape({-1}));
  const at::Tensor all = at::empty({world, longest * width}, own.options());
  comm.all_gather_into(all.view({-1}), own, parameter).wait();
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < world; ++rank)
    parts.push_back(all[rank].narrow(0, 0, (begins[rank + 1] - begins[rank]) * width));
  return at::cat(parts).view(part.scalar_type());
}

struct GatherParts : torch::autograd::Function<GatherParts> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& part,
                            const Placement& placement, Communicator& comm,
                            const std::string& parameter) {
    context->saved_data["begin"] = placement.begin();
    context->saved_data["sizes"] = part.sizes().vec();
    return all_gather_parts(part, placement.begins, comm, parameter).view(placement.sizes);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto sizes = context->saved_data["sizes"].toIntVector();
    const at::Tensor own = gradients.front().reshape({-1}).narrow(
        0, context->saved_data["begin"].toInt(), c10::multiply_integers(sizes));
    return {own.view(sizes), {}, {}, {}};
  }
};

std::shared_ptr<Communicator> communicator_of(const Placement& placement,
                                              const std::string& parameter) {
  auto comm = placement.comm.lock();
  if (!comm)
    throw std::logic_error("parameter " + parameter +
                           ": its model was destroyed, so its values can't be gathered");
  return comm;
}

}  // namespace

std::shared_ptr<const Placement> placement_of(at::IntArrayRef sizes, int64_t flat,
                                              int64_t shard_numel,
                                              const std::shared_ptr<Communicator>& comm) {
  auto placement = std::make_shared<Placement>();
  placement->comm = comm;
  placement->rank = comm->rank();
  placement->sizes = sizes.vec();
  const int64_t numel = c10::multiply_integers(sizes);
  for (int rank = 0; rank <= comm->world_size(); ++rank)
    placement->begins.push_back(std::clamp<int64_t>(rank * shard_numel - flat, 0, numel));
  return placement;
}

at::Tensor gather_parts(const at::Tensor& part, const Placement& placement,
                        const std::string& parameter) {
  return GatherParts::apply(part, placement, *communicator_of(placement, parameter), parameter);
}

at::Tensor gather_values(const at::Tensor& value, const Placement& placement,
                         const std::string& parameter) {
  std::vector<int64_t> begins{0};
  for (size_t rank = 0; rank + 1 < placement.begins.size(); ++rank)
    begins.push_back(begins.back() + (placement.begins[rank] < placement.begins[rank + 1] ? 1 : 0));
  return all_gather_parts(value.reshape({1}).narrow(0, 0, std::min<int64_t>(placement.numel(), 1)),
                          begins, *communicator_of(placement, parameter), parameter);
}

std::optional<at::Tensor> cut(const at::Tensor& whole, const Placement& placement,
                              at::IntArrayRef part_sizes) {
  if (!at::is_expandable_to(whole.sizes(), placement.sizes)) return {};
  return whole.expand(placement.sizes)
      .reshape({-1})
      .narrow(0, placement.begin(), placement.numel())
      .view(part_sizes);
}

}  // namespace fsdp
