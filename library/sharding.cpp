#include <check_hookable.h>
#include <ignored.h>
#include <memory/storage_guard.h>
#include <model_checks.h>
#include <sharding.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

const char* const kName = "FullyShardedDataParallel";

// Whether this thread runs a part of a backward pass. Not at its end, when everything has run.
bool in_backward() {
  return torch::autograd::get_current_node() != nullptr;
}

uint32_t version_of(const FlatParameter& unit) {
  return unit.shard()._version();
}

void warn_if_nothing_is_chosen(const WrapPolicy& policy, const std::vector<Module*>& chosen) {
  if (!chosen.empty() || policy.target<WrapByHand>() != nullptr) return;
  TORCH_WARN(kName,
             ": the wrap policy chose no module, so the model is one unit, and is gathered as a "
             "whole; set .wrap, for example to wrap_by_type(\"MyLayer\"), or to wrap_none() if "
             "this is what you want");
}

// Every rank gets rank 0's values.
void broadcast_from_rank_0(Communicator& comm, const std::vector<NamedParameter>& tensors) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() == 0) continue;
    at::Tensor values = tensor.detach().contiguous();
    comm.broadcast(values, 0, kState).wait();
    if (!values.is_alias_of(tensor)) at::Tensor(tensor).detach().copy_(values);
  }
}

}  // namespace

std::shared_ptr<Sharding> Sharding::create(Module& net, std::shared_ptr<Communicator> comm,
                                           const FullyShardedDataParallelOptions& options) {
  const Purpose purpose(kName);
  check_can_be_sharded(net);
  if ((options.sync_module_states || options.broadcast_buffers) &&
      comm->summed_ranks() > comm->world_size()) {
    throw std::invalid_argument(std::string(kName) +
                                ": .sync_module_states and .broadcast_buffers reach one replica "
                                "alone; seed all ranks alike");
  }
  const WrapPolicy policy = options.wrap ? options.wrap : wrap_blocks();
  const std::vector<Module*> chosen = policy(net);
  if (comm->rank() == 0) warn_if_nothing_is_chosen(policy, chosen);
  check_hookable(net, chosen);
  const auto plan = plan_units(net, wrap_by_hand(chosen), options.ignored);
  auto traits = traits_of_structure(net, plan);
  traits.push_back({".limit", std::to_string(options.limit)});
  traits.push_back({".reshard_after_forward", std::to_string(options.reshard_after_forward)});
  traits.push_back({".sync_module_states", std::to_string(options.sync_module_states)});
  traits.push_back({".broadcast_buffers", std::to_string(options.broadcast_buffers)});
  if (!options.sync_module_states)
    for (const Trait& trait : traits_of_values(net))
      traits.push_back(trait);
  check_same_on_all_ranks(*comm, traits, kName,
                          "build the same model on every rank, after the same "
                          "torch::manual_seed(), or set .sync_module_states for the same values");
  if (options.sync_module_states) {
    broadcast_from_rank_0(*comm, distinct_parameters(net));
    broadcast_from_rank_0(*comm, distinct_buffers(net));
  }
  const std::shared_ptr<Sharding> sharding(new Sharding(net, std::move(comm), options));
  sharding->options_.wrap = wrap_by_hand(chosen);  // a policy is asked once
  sharding->shard(plan);
  return sharding;
}

void Sharding::shard(const std::vector<UnitPlan>& plan) {
  for (const at::Tensor& parameter : net_.parameters())
    parameters_.insert(parameter.unsafeGetTensorImpl());
  for (const UnitPlan& unit : plan)
    watched_.push_back(std::make_shared<Watched>(Watched{unit.module}));
  if (std::ranges::none_of(watched_, [&](auto& one) { return one->module == &net_; }))
    watched_.push_back(std::make_shared<Watched>(Watched{&net_}));
  register_first_hooks();
  try {
    sharded_ = fully_shard(net_, comm_,
                           {.wrap = options_.wrap,
                            .reshard_after_forward = options_.reshard_after_forward,
                            .limit = options_.limit,
                            .materialize = options_.materialize,
                            .ignored = options_.ignored});
  } catch (...) {
    for (auto& hook : first_hooks_)
      hook.remove();
    throw;
  }
  for (size_t i = 0; i < sharded_->units().size(); ++i)
    watched_[i]->unit = sharded_->units()[i];
  guard_units();
  tensors_ = std::make_shared<ShardTensors>(*sharded_);
  tensors_->register_hooks();
  tensors_->set_traps();
  register_last_hooks();
}

void Sharding::guard_units() {
  for (const auto& watched : watched_) {
    if (!watched->unit) continue;
    const FlatParameter& unit = *watched->unit;
    const auto& parameters = unit.parameters();
    watched->storage = parameters.front().tensor.storage();
    const size_t others = parameters.size() - 1;
    guard_storage(
        watched->storage,
        "parameter " + parameters.front().name +
            (others > 0 ? " and " + std::to_string(others) + " more" : "") + " of unit " +
            unit.unit() + (others > 0 ? " are" : " is") +
            " sharded now: call the module (module(x), not module.forward(x)), or "
            "use summon_full_params(); optimizers take model.parameters(); holders are made "
            "by FSDP_MODULE, not TORCH_MODULE",
        unit.layout().padded_numel * unit.shard().element_size());
  }
}

// Before those of fully_shard(): what was gathered before a change of the shards must not be used.
void Sharding::register_first_hooks() {
  for (const auto& watched : watched_) {
    first_hooks_.push_back(watched->module->register_forward_pre_hook(
        [self = shared_from_this(), watched](Module&, const at::Tensor&) {
          self->before_forward(*watched);
          return at::Tensor();
        }));
    first_hooks_.push_back(watched->module->register_full_backward_pre_hook(
        [self = shared_from_this(), watched](Module&) { self->before_backward(*watched); }));
  }
}

// After those of fully_shard(): units are resharded and gathers have ended.
void Sharding::register_last_hooks() {
  for (const auto& watched : watched_) {
    watched->module->register_forward_hook(
        [self = shared_from_this(), watched](Module&, const at::Tensor& output) {
          self->after_forward(*watched, output.defined());
          return at::Tensor();
        },
        /*always_call=*/true);
  }
  // Weak: this object owns the hooks of backward.
  sharded_->backward_hooks()->on_end(
      [weak = weak_from_this(), prefetcher = sharded_->prefetcher()] {
        prefetcher->end_backward();
        if (const auto alive = weak.lock()) alive->end_pass();
      });
}

void Sharding::before_forward(Watched& watched) {
  calls_.push_back(watched.module->current_call());
  if (summoned_) {
    throw std::logic_error(watched.module->name() +
                           ": called inside summon_full_params(); call the module outside of it");
  }
  if (calls_.size() == 1 && !in_backward()) begin_forward();
  if (!watched.unit) return;
  check_views(watched);
  check_unwritten(watched);
}

// What is gathered now was gathered before this call, and may be old: a unit that waits for its
// backward, or whatever a pass has left that broke off. All ranks find the same.
void Sharding::begin_forward() {
  for (const auto& watched : watched_) {
    if (!watched->unit || watched->unit->state() == UnitState::sharded) continue;
    if (watched->kept != version_of(*watched->unit)) watched->unit->reshard();
  }
  check_parameters();
  check_frozen();
  tensors_->follow_zero_grad();
  if (options_.broadcast_buffers) broadcast_buffers();
}

void Sharding::broadcast_buffers() {
  const Purpose purpose(".broadcast_buffers");
  broadcast_from_rank_0(*comm_, distinct_buffers(net_));
}

// Also of a call that never came to before_forward(), because a hook threw before.
void Sharding::after_forward(Watched& watched, bool returned) {
  if (std::erase(calls_, watched.module->current_call()) == 0) return;
  if (watched.unit && at::GradMode::is_enabled()) watched.in_forward = version_of(*watched.unit);
  // What threw on this rank alone, others do not come to.
  if (returned && calls_.empty() && !in_backward()) end_forward();
  if (returned && watched.unit) check_unwritten(watched);
}

void Sharding::end_forward() {
  const bool may_change = tensors_->have_gradients();
  for (const auto& watched : watched_) {
    watched->kept.reset();
    if (!watched->unit) continue;
    if (watched->unit->state() == UnitState::gathering) watched->unit->reshard();
    if (watched->unit->state() == UnitState::unsharded && !may_change)
      watched->kept = version_of(*watched->unit);
  }
  comm_->wait_for_readers();
}

void Sharding::before_backward(const Watched& watched) {
  if (!watched.unit) return;
  const std::string unit = "backward: unit " + watched.unit->unit();
  if (at::GradMode::is_enabled()) {
    throw std::logic_error(unit +
                           " is sharded, so backward cannot be differentiated: create_graph "
                           "has to be off");
  }
  const uint32_t version = version_of(*watched.unit);
  if (watched.in_forward.value_or(version) != version) {
    throw std::logic_error(unit +
                           " was changed since its forward, by an optimizer's step or by "
                           "hand; run backward before the change, or forward anew");
  }
}

// Also when a pass that has broken off is noticed: in a forward, or in a part of another pass.
void Sharding::end_pass() {
  const bool of_engine = torch::autograd::get_current_graph_task_id() >= 0;
  const bool broken_off = of_engine ? in_backward() : !calls_.empty();
  if (gives_gradients_ && broken_off) tensors_->drop_gradients();
  if (gives_gradients_ && !broken_off) {
    tensors_->take_gradients();
    tensors_->mark_waiting();
  }
  if (broken_off) {
    tensors_->forget_traps();
    return;
  }
  tensors_->set_traps();
  comm_->wait_for_readers();
}

void Sharding::check_views(const Watched& watched) const {
  for (const auto& [name, parameter] : watched.unit->parameters()) {
    if (parameter.storage().unsafeGetStorageImpl() == watched.storage.unsafeGetStorageImpl())
      continue;
    throw std::logic_error("parameter " + name + " of unit " + watched.unit->unit() +
                           " was replaced after it was sharded, by load(), to() or set_data(); "
                           "use load_state_dict() or summon_full_params()");
  }
}

// What is written to a gathered parameter is lost when its unit is resharded.
void Sharding::check_unwritten(Watched& watched) {
  const auto& parameters = watched.unit->parameters();
  std::vector<uint32_t> versions;
  for (const auto& [name, parameter] : parameters)
    versions.push_back(parameter._version());
  const auto before = std::exchange(watched.versions, versions);
  if (before.empty() || before == versions) return;
  const auto first = std::ranges::mismatch(before, versions).in1 - before.begin();
  throw std::logic_error("parameter " + parameters[static_cast<size_t>(first)].name + " of unit " +
                         watched.unit->unit() +
                         " was written to while it was gathered, which is lost; write to it in "
                         "summon_full_params(), or to model.parameters()");
}

// A parameter that some ranks alone train would get a part of its gradient.
void Sharding::check_frozen() {
  tensors_->compare_requires_grad();
  if (!tensors_->take_frozen_or_unfrozen()) return;
  std::vector<Trait> traits;
  for (const auto& entry : tensors_->entries())
    traits.push_back({"parameter " + entry.name, entry.requires_grad ? "trainable" : "frozen"});
  check_same_on_all_ranks(*comm_, traits, kName, "freeze the same parameters on every rank");
}

void Sharding::check_parameters() const {
  for (const auto& parameter : net_.named_parameters()) {
    if (parameters_.contains(parameter.value().unsafeGetTensorImpl())) continue;
    throw std::logic_error("parameter " + parameter.key() +
                           " was registered after the model was sharded, so its gradient would not "
                           "be reduced; build the whole model before");
  }
}

void Sharding::check_views() const {
  for (const auto& watched : watched_)
    if (watched->unit) check_views(*watched);
}

void Sharding::begin(const std::string& function) {
  if (!calls_.empty() || in_backward() || summoned_) {
    throw std::logic_error(function + "(): called inside " +
                           (summoned_       ? "summon_full_params()"
                            : in_backward() ? "a backward pass"
                                            : "a module's call") +
                           "; call it between steps");
  }
  check_views();
  check_parameters();
  for (const auto& unit : sharded_->units())
    unit->reshard();
  comm_->wait_for_readers();
}

Sharding::Summoned::Summoned(Sharding& sharding) : sharding_(sharding) {
  for (const auto& unit : sharding_.sharded().units())
    unit->unshard_async();
  for (const auto& unit : sharding_.sharded().units())
    unit->unshard();
  sharding_.comm().wait_for_readers();
  sharding_.summoned_ = true;
}

Sharding::Summoned::~Summoned() {
  sharding_.summoned_ = false;
  for (const auto& watched : sharding_.watched_)
    watched->versions.clear();
  for (const auto& unit : sharding_.sharded().units())
    unit->reshard();
}

}  // namespace fsdp
