#include <agreement/agreement.h>
#include <model_checks.h>
#include <module_state.h>

#include <stdexcept>

namespace fsdp {
namespace {

void check_fits(const StateDict& state, const Module& net) {
  const auto own = named_tensors(net);
  for (const auto& entry : state) {
    if (!own.contains(entry.key()))
      throw std::invalid_argument("load_state_dict: the model has no " + entry.key());
  }
  std::map<at::TensorImpl*, std::string> first_names;
  for (const auto& [name, tensor] : own) {
    if (!state.contains(name))
      throw std::invalid_argument("load_state_dict: the state lacks " + name);
    const at::Tensor given = state.at(name);
    if (given.sizes() != tensor.sizes() ||
        given.is_floating_point() != tensor.is_floating_point()) {
      throw std::invalid_argument("load_state_dict: " + name + " is " + dtype_and_sizes(given) +
                                  ", in the model " + dtype_and_sizes(tensor));
    }
    const auto [tied, first] = first_names.try_emplace(tensor.unsafeGetTensorImpl(), name);
    if (!first && !at::equal(given, state.at(tied->second))) {
      throw std::invalid_argument("load_state_dict: " + name + " and " + tied->second +
                                  " are one tensor in the model, but have two values in the state");
    }
  }
}

}  // namespace

std::map<std::string, at::Tensor> named_tensors(const Module& net) {
  std::map<std::string, at::Tensor> named;
  for (const auto& parameter : net.named_parameters())
    named[parameter.key()] = parameter.value();
  for (const auto& buffer : net.named_buffers())
    if (buffer.value().defined()) named[buffer.key()] = buffer.value();
  return named;
}

StateDict state_of(const Module& net,
                   const std::function<at::Tensor(const at::Tensor& tensor)>& copy) {
  StateDict state;
  for (const auto& parameter : net.named_parameters())
    state.insert(parameter.key(), copy(parameter.value()));
  for (const auto& buffer : net.named_buffers())
    if (buffer.value().defined()) state.insert(buffer.key(), copy(buffer.value()));
  return state;
}

at::Tensor owned_copy(const at::Tensor& tensor) {
  return tensor.detach().cpu().clone(at::MemoryFormat::Contiguous);
}

void check_can_be_loaded(const StateDict& state, const Module& net, Communicator& comm) {
  agree_on(comm, [&] { check_fits(state, net); });
  std::vector<RankInvariant> invariants;
  for (const auto& entry : state)
    invariants.push_back(
        invariant_of_values(entry.key(), entry.value(), "load the same on every rank"));
  check_same_on_all_ranks(comm, invariants, "load_state_dict", "load the same on every rank");
}

void add_buffers(std::vector<RankInvariant>& invariants, const Module& net) {
  add_values(invariants, "buffer", distinct_buffers(net),
             "call average_buffers() before, or set .broadcast_buffers");
}

}  // namespace fsdp
