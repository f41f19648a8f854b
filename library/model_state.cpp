#include <distributed_data_parallel.h>
#include <memory/storage_guard.h>
#include <model_checks.h>
#include <sharded_optimizer.h>
#include <sharding.h>
#include <state/agreement.h>
#include <state/model_state.h>
#include <state/whole_state.h>

#include <map>
#include <stdexcept>

namespace fsdp {
namespace {

// Under every name: a tied parameter has several.
std::map<std::string, at::Tensor> named_tensors(const Module& net) {
  std::map<std::string, at::Tensor> named;
  for (const auto& parameter : net.named_parameters())
    named[parameter.key()] = parameter.value();
  for (const auto& buffer : net.named_buffers())
    if (buffer.value().defined()) named[buffer.key()] = buffer.value();
  return named;
}

void check_fits(const StateDict& state, const Module& net) {
  const auto own = named_tensors(net);
  for (const auto& entry : state) {
    if (!own.contains(entry.key()))
      throw std::invalid_argument("load_state_dict: the model has no " + entry.key());
  }
  std::map<at::TensorImpl*, std::string> first_names;
  for (const auto& [name, tensor] : own) {
    if (!state.contains(name)) throw std::invalid_argument("load_state_dict: lacks " + name);
    const at::Tensor given = state.at(name);
    if (given.sizes() != tensor.sizes() ||
        given.is_floating_point() != tensor.is_floating_point()) {
      throw std::invalid_argument("load_state_dict: " + name + " is " + dtype_and_sizes(given) +
                                  ", in the model " + dtype_and_sizes(tensor));
    }
    const auto [tied, first] = first_names.try_emplace(tensor.unsafeGetTensorImpl(), name);
    if (!first && !at::equal(given, state.at(tied->second))) {
      throw std::invalid_argument("load_state_dict: " + name + " and " + tied->second +
                                  " are one tensor in the model, and have two values");
    }
  }
}

void add_buffers(std::vector<Trait>& traits, const Module& net) {
  add_values(traits, "buffer", distinct_buffers(net),
             "call average_buffers() before, or set .broadcast_buffers");
}

// Collective. Throws unless what each rank has as a whole is the same.
void check_unsharded(Sharding& sharding, const std::string& where) {
  if (sharding.options().broadcast_buffers) sharding.broadcast_buffers();
  const auto ignored = ignored_parameters(sharding.net(), sharding.sharded());
  for (const auto& [name, parameter] : ignored)
    if (is_freed(parameter))
      throw std::logic_error(
          where + ": parameter " + name +
          " of an ignored module is sharded by another object, which alone has its "
          "values; shard it with the rest, or replicate it");
  std::vector<Trait> traits;
  add_buffers(traits, sharding.net());
  add_values(traits, "parameter", ignored,
             "its module is ignored: copy them from one rank by Communicator::broadcast(), with "
             "replicas by that of replicas() before, and all-reduce its gradient before each step, "
             "or freeze it");
  check_same_on_all_ranks(sharding.comm(), traits, where);
}

// Collective. Throws on every rank unless all give the same, and it fits.
void check_can_be_loaded(const StateDict& state, const Module& net, Communicator& comm) {
  agree_on(comm, [&] { check_fits(state, net); });
  std::vector<Trait> traits;
  for (const auto& entry : state)
    traits.push_back(trait_of_values(entry.key(), entry.value(), "load the same on every rank"));
  check_same_on_all_ranks(comm, traits, "load_state_dict", "load the same on every rank");
}

// Under every name, each as `copy` gives it.
template <class Copy>
StateDict state_of(const Module& net, const Copy& copy) {
  StateDict state;
  for (const auto& parameter : net.named_parameters())
    state.insert(parameter.key(), copy(parameter.value()));
  for (const auto& buffer : net.named_buffers())
    if (buffer.value().defined()) state.insert(buffer.key(), copy(buffer.value()));
  return state;
}

at::Tensor owned(const at::Tensor& tensor) {
  return tensor.detach().cpu().clone(at::MemoryFormat::Contiguous);
}

}  // namespace

StateDict ShardedModel::state_dict(bool rank0_only) {
  const Purpose purpose("state_dict()");
  sharding_->begin("state_dict");
  Communicator& comm = sharding_->comm();
  check_unsharded(*sharding_, "state_dict");
  const bool keeps = !rank0_only || comm.rank() == 0;
  const at::NoGradGuard no_grad;
  std::map<at::TensorImpl*, at::Tensor> whole;
  std::vector<Trait> traits;  // of replicas
  for (size_t unit = 0; unit < units().size(); ++unit) {
    const at::Tensor flat = gather_flat(comm, units()[unit]->shard(), units()[unit]->unit());
    for (const auto& entry : sharding_->leaves().entries()) {
      if (entry.unit != unit || (!keeps && !comm.replicas())) continue;
      const at::Tensor parameter = cut_out(flat, entry.flat, entry.whole.sizes());
      if (keeps) whole[entry.whole.unsafeGetTensorImpl()] = parameter;
      if (comm.replicas())  // without the values, which only ranks that keep them hold
        traits.push_back(
            trait_of_values("parameter " + entry.name, parameter, kReplicasDiffer, /*keep=*/false));
    }
  }
  comm.wait_for_readers();
  if (comm.replicas()) check_same_on_all_ranks(comm, traits, "state_dict");
  if (!keeps) return StateDict();
  return state_of(sharding_->net(), [&](const at::Tensor& tensor) {
    const auto found = whole.find(tensor.unsafeGetTensorImpl());
    return found != whole.end() ? found->second : owned(tensor);
  });
}

void ShardedModel::load_state_dict(const StateDict& state) {
  const Purpose purpose("load_state_dict()");
  sharding_->begin("load_state_dict");
  check_can_be_loaded(state, sharding_->net(), sharding_->comm());

  const at::NoGradGuard no_grad;
  auto own = named_tensors(sharding_->net());
  for (const auto& entry : sharding_->leaves().entries()) {
    const at::Tensor given = state.at(entry.name).flatten();
    at::Tensor(entry.leaf)
        .copy_(given.narrow(0, entry.begin, entry.leaf.numel()).view(entry.leaf.sizes()));
    std::erase_if(own, [&](const auto& named) { return named.second.is_same(entry.whole); });
  }
  for (auto& [name, tensor] : own)  // buffers, and parameters of ignored modules
    tensor.copy_(state.at(name));
}

ModelState ShardedModel::checkpoint_state(ShardedOptimizer& optimizer) {
  const Purpose purpose("checkpoint_state()");
  sharding_->begin("checkpoint_state");
  check_unsharded(*sharding_, "checkpoint_state");
  ModelState state;
  for (const auto& [name, parameter] : distinct_parameters(sharding_->net()))
    state.parameters.push_back({name, parameter.sizes().vec()});
  auto whole = ignored_parameters(sharding_->net(), sharding_->sharded());
  for (const auto& buffer : distinct_buffers(sharding_->net())) {
    state.parameters.push_back(
        {buffer.name, buffer.tensor.sizes().vec(), buffer.tensor.scalar_type()});
    whole.push_back(buffer);
  }
  state.ranges = optimizer.state();
  for (const auto& [name, tensor] : whole) {
    if (!tensor.is_contiguous())
      throw std::invalid_argument("checkpoint_state: " + name + " has to be contiguous");
    if (tensor.numel() > 0)
      state.ranges.push_back({name, 0, tensor.numel(), tensor.detach().view({-1}), {}, {}, {}});
  }
  return state;
}

StateDict ReplicatedModel::state_dict(bool rank0_only) {
  begin("state_dict");
  if (broadcast_buffers_) broadcast_from_rank_0(*comm_, distinct_buffers(net_));
  std::vector<Trait> traits;
  add_buffers(traits, net_);
  add_values(traits, "parameter", distinct_parameters(net_), kReplicasDiffer);
  check_same_on_all_ranks(*comm_, traits, "state_dict");
  if (rank0_only && comm_->rank() != 0) return StateDict();
  return state_of(net_, owned);
}

void ReplicatedModel::load_state_dict(const StateDict& state) {
  begin("load_state_dict");
  check_can_be_loaded(state, net_, *comm_);
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : named_tensors(net_))
    at::Tensor(tensor).copy_(state.at(name));
}

}  // namespace fsdp
