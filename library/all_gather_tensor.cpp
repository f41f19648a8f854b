#include <all_gather_tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>
#include <vector>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// What the backward of one call of all_gather_tensor() needs: the call's communicator, its name,
// and the sizes of this rank's tensor.
struct Gathered : torch::CustomClassHolder {
  Gathered(std::shared_ptr<Communicator> comm, std::string name, at::IntArrayRef sizes)
      : comm(std::move(comm)), name(std::move(name)), sizes(sizes.vec()) {}
  std::shared_ptr<Communicator> comm;
  std::string name;
  std::vector<int64_t> sizes;  // sizes of the tensor that this rank passed to all_gather_tensor()
};

struct AllGather : torch::autograd::Function<AllGather> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor,
                            const std::shared_ptr<Communicator>& comm, const std::string& name) {
    context->saved_data["call"] =
        c10::IValue::make_capsule(c10::make_intrusive<Gathered>(comm, name, tensor.sizes()));
    std::vector<int64_t> sizes = tensor.sizes().vec();
    sizes[0] *= comm->world_size();
    const at::Tensor all = at::empty(sizes, tensor.options());
    comm->all_gather_into(all.view({-1}), tensor.reshape({-1}), name).wait();
    return all;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto held = context->saved_data["call"].toCapsule();
    const auto& call = static_cast<const Gathered&>(*held);
    const at::Tensor own = at::empty(call.sizes, gradients.front().options());
    const at::Tensor all = gradients.front().reshape({-1});
    call.comm->reduce_scatter_into(own.view({-1}), all, call.name).wait();
    return {own, {}, {}};
  }
};

}  // namespace

at::Tensor all_gather_tensor(const at::Tensor& tensor, const std::shared_ptr<Communicator>& comm,
                             const std::string& name) {
  if (tensor.dim() == 0)
    throw std::invalid_argument(
        "all_gather_tensor(): the tensor has no dimension; pass "
        "tensor.unsqueeze(0)");
  if (comm->replicas())
    throw std::invalid_argument(
        "all_gather_tensor(): the communicator has replicas; pass one of "
        "Communicator::create()");
  return AllGather::apply(tensor, comm, name);
}

}  // namespace fsdp
