#include <backward_pass.h>
#include <buffers.h>
#include <check_hookable.h>
#include <model_checks.h>
#include <nn/reads_in_calls.h>
#include <sharding.h>
#include <state/whole_state.h>
#include <strategies/root_readers.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

std::string text_of(const MixedPrecisionPolicy& policy) {
  return std::string(dtype_name(policy.param_dtype)) + ", reduced in " +
         dtype_name(policy.reduce_dtype);
}

void warn_if_nothing_is_chosen(const WrapPolicy& policy, const std::vector<Module*>& chosen) {
  if (!chosen.empty() || policy.target<WrapByHand>() != nullptr) return;
  TORCH_WARN(kFullyShardedDataParallel,
             ": the wrap policy chose no module, so the model is one unit, and is gathered as a "
             "whole; set .wrap, for example to wrap_by_type(\"MyLayer\"), or to wrap_none() if "
             "this is what you want");
}

// Does not warn of parameters that another object shards or replicates, since it reduces them.
void warn_if_ignored_ones_train(const std::vector<NamedParameter>& ignored) {
  const auto trains = [](const NamedParameter& one) {
    return one.tensor.requires_grad() && !is_replicated(one.tensor) && !is_freed(one.tensor);
  };
  const auto first = std::ranges::find_if(ignored, trains);
  if (first == ignored.end()) return;
  TORCH_WARN(kName, ": parameter ", first->name,
             " of an ignored module is trainable, and each rank gets a gradient of its own; "
             "replicate it by DistributedDataParallel, all-reduce it before each step, or freeze "
             "it");
}

// Returns what an error says of a parameter that is read while its unit is sharded, by
// Sharding::Situation. The texts are made once, because each call of a module chooses one.
std::array<std::string, 3> messages_of(const std::string& are_sharded, const Module& of_unit) {
  const std::string& module = of_unit.name();
  const bool promises = dynamic_cast<const ReadsInCalls*>(&of_unit) != nullptr;
  const std::string others = "; other causes are in docs/what_works.md";
  return {are_sharded +
              "now: call the module (module(x), not module.forward(x)), or use "
              "summon_full_params(); optimizers take model.parameters()" +
              others,
          are_sharded + "inside a call of " + module +
              ": another call of it, inside this one, has ended and resharded the unit; call it "
              "once and repeat what is inside, or set .reshard_after_forward to false" +
              others,
          are_sharded + "in backward, which reads them: " +
              (promises ? module + " is a ReadsInCalls, but reads one of them outside of the calls "
                                   "of the module that has it; let it be none"
                        : "reads_parameters_in_backward() of " + module +
                              " returns false; let it return true") +
              others};
}

}  // namespace

std::shared_ptr<Sharding> Sharding::create(Module& net, std::shared_ptr<Communicator> comm,
                                           const FullyShardedDataParallelOptions& options) {
  const Purpose purpose(kFullyShardedDataParallel);
  check_can_be_sharded(net, options.ignored);
  check_mixed_precision(options.mixed_precision);
  const WrapPolicy policy = options.wrap ? options.wrap : wrap_blocks();
  const std::vector<Module*> chosen = policy(net);
  if (comm->global_rank() == 0) warn_if_nothing_is_chosen(policy, chosen);
  check_hookable(net, chosen);
  const auto plan = plan_units(net, wrap_by_hand(chosen), options.ignored);
  begin_alike(*comm, net, plan,
              {{".limit", std::to_string(options.limit)},
               {".reshard_after_forward", std::to_string(options.reshard_after_forward)},
               {".mixed_precision", text_of(options.mixed_precision)},
               {".sync_module_states", std::to_string(options.sync_module_states)},
               {".broadcast_buffers", std::to_string(options.broadcast_buffers)}},
              options.sync_module_states, kFullyShardedDataParallel);
  const std::shared_ptr<Sharding> sharding(new Sharding(net, std::move(comm), options));
  sharding->options_.wrap = wrap_by_hand(chosen);  // a policy is asked once
  sharding->shard(plan);
  return sharding;
}

void Sharding::shard(const std::vector<UnitPlan>& plan) {
  for (const at::Tensor& parameter : net_.parameters())
    parameters_.insert(parameter.unsafeGetTensorImpl());
  for (const UnitPlan& unit : plan)
    hooked_.push_back(std::make_shared<HookedModule>(*unit.module));
  if (std::ranges::none_of(hooked_, [&](auto& one) { return &one->module() == &net_; }))
    hooked_.push_back(std::make_shared<HookedModule>(net_));
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
  for (size_t i = 0; i < sharded_->units().size(); ++i) {
    const auto& unit = sharded_->units()[i];
    if (options_.mixed_precision != MixedPrecisionPolicy())
      unit->set_mixed_precision(options_.mixed_precision);
    hooked_[i]->guard(unit);
  }
  leaves_ = std::make_shared<ShardedLeaves>(*sharded_, comm_->world_size());
  gradients_ = ShardedGradients::create(*sharded_, leaves_);
  agreed_ = leaves_->requires_grad();
  register_last_hooks();
  reshard_root_early();
}

// A unit whose parameters have no elements is never freed: it has no memory to guard.
void Sharding::guard_units() {
  for (const auto& watched : watched_) {
    if (!watched->unit) continue;
    const FlatParameter& unit = *watched->unit;
    const auto& parameters = unit.parameters();
    watched->storage = parameters.front().tensor.storage();
    const int64_t bytes = unit.layout().padded_numel * unit.shard().element_size();
    if (bytes == 0) continue;
    const size_t others = parameters.size() - 1;
    const std::string are_sharded = "parameter " + parameters.front().name +
                                    (others > 0 ? " and " + std::to_string(others) + " more" : "") +
                                    " of unit " + unit.unit() + (others > 0 ? " are" : " is") +
                                    " sharded ";
    watched->messages = messages_of(are_sharded, *watched->module);
    guard_storage(watched->storage, watched->messages[0], bytes);
  }
}

void Sharding::say_what_to_do(const Watched& watched, Situation situation) {
  const std::string& message = watched.messages[static_cast<size_t>(situation)];
  if (!message.empty()) set_guard_message(watched.storage, message);
}

// Before those of fully_shard(): what was gathered before a change of the shards must not be used.
void Sharding::register_first_hooks() {
  const at::ScalarType dtype = options_.mixed_precision.param_dtype;
  if (options_.cast_forward_inputs && dtype != at::kFloat) {
    first_hooks_.push_back(
        net_.register_forward_pre_hook([dtype](Module&, const at::Tensor& input) {
          const bool fits = input.defined() && input.is_floating_point();
          return fits ? input.to(dtype) : at::Tensor();
        }));
  }
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

// If this is known to be possible. What reads the root then breaks a promise of the model's.
void Sharding::reshard_root_early() {
  const auto& units = sharded_->layout().units;
  std::vector<std::shared_ptr<Watched>> of_root;
  for (size_t i = 0; i < units.size(); ++i)
    if (units[i].root) of_root.push_back(watched_[i]);
  when_root_is_unread(net_, sharded_->layout(), [of_root] {
    for (const auto& watched : of_root) {
      watched->unit->reshard();
      say_what_to_do(*watched, Situation::in_backward);
    }
  });
}

void Sharding::before_forward(Watched& watched) {
  calls_.push_back(watched.module->current_call());
  if (summoned_) {
    throw std::logic_error(watched.module->name() +
                           ": called inside summon_full_params(); call the module outside of it");
  }
  if (calls_.size() == 1 && !tensors_->pass_is_under_way()) begin_forward();
  if (!watched.unit) return;
  ++watched.calls;
  say_what_to_do(watched, Situation::called);
  check_views(watched);
  check_unwritten(watched);
}

// What is gathered now was gathered before this call, and may be old: a unit that waits for its
// backward, or what a pass has left that threw. No counter of this rank tells whether another rank
// has changed its shard, so all of it is gathered again.
void Sharding::begin_forward() {
  if (!in_backward()) {
    settle_broken_passes();
    if (at::GradMode::is_enabled())
      for (const auto& watched : watched_)
        watched->unrecorded.forget();
  }
  drop_old_casts();
  tensors_->take_data();
  for (const auto& unit : sharded_->units())
    unit->reshard();
  check_parameters();
  check_frozen();
  tensors_->expect_drop();
  if (options_.broadcast_buffers) broadcast_buffers();
  // The warning waits for the first training forward, because an ignored module may be replicated
  // after the rest is sharded.
  if (at::GradMode::is_enabled() && !std::exchange(has_trained_, true) && comm_->global_rank() == 0)
    warn_if_ignored_ones_train(ignored_parameters(net_, *sharded_));
}

void Sharding::broadcast_buffers() {
  const Purpose purpose(".broadcast_buffers");
  broadcast_from_rank_0(*comm_, distinct_buffers(net_));
}

// Also of a call that never came to before_forward(), because a hook threw before.
void Sharding::after_forward(Watched& watched, bool returned) {
  if (std::erase(calls_, watched.module->current_call()) == 0) return;
  if (watched.calls > 0) {
    --watched.calls;
    if (watched.calls == 0) say_what_to_do(watched, Situation::not_called);
  }
  if (watched.unit && at::GradMode::is_enabled()) watched.in_forward = version_of(*watched.unit);
  if (returned && watched.unrecorded.run_again()) tensors_->in_pass();
  if (calls_.empty() && !tensors_->pass_is_under_way()) end_forward(returned);
  if (returned && watched.unit) check_unwritten(watched);
}

// To what threw on this rank alone, others do not come. What was called before it, they have
// called.
void Sharding::end_forward(bool returned) {
  for (const auto& unit : sharded_->units())
    if (unit->state() == UnitState::gathering) unit->reshard();
  tensors_->set_traps();
  if (!at::GradMode::is_enabled()) casts_may_be_old_ = true;
  if (returned) comm_->wait_for_readers();
}

// Under autocast LibTorch keeps what a parameter was cast to, until somebody calls clear_cache().
// In a later forward a cast that was made before is another node of the graph, outside of the
// unit's call, so its gradient would come after the unit is reduced; and it may have the values
// that the parameter had before an optimizer's step.
void Sharding::drop_old_casts() {
  const auto device = comm_->device();
  if (!casts_may_be_old_ || !at::autocast::is_autocast_enabled(device)) return;
  at::autocast::clear_cache();
  casts_may_be_old_ = false;
}

void Sharding::before_backward(const Watched& watched) {
  if (!watched.unit) return;
  const std::string unit = "backward: unit " + watched.unit->unit();
  if (at::GradMode::is_enabled()) {
    throw std::logic_error(unit +
                           " is sharded, so backward cannot be differentiated: create_graph "
                           "has to be off");
  }
  tensors_->in_pass();
  const uint32_t version = version_of(*watched.unit);
  if (watched.in_forward.value_or(version) != version || !is_current(*watched.unit)) {
    throw std::logic_error(unit +
                           " was changed since its forward, by an optimizer's step or by "
                           "hand; run backward before the change, or forward anew");
  }
  if (!watched.module->reads_parameters_in_backward())
    say_what_to_do(watched, Situation::in_backward);
}

// Also called when a forward or a later pass notices that a pass threw. Then `tensors_` has broken
// it off already, and nothing is left to do.
void Sharding::end_pass() {
  if (!tensors_->pass_is_under_way()) return;
  casts_may_be_old_ = true;
  for (const auto& watched : watched_) {
    const bool is_root = watched->module == &net_;
    if ((is_root || !watched->module->reads_parameters_in_backward()) && watched->calls == 0)
      say_what_to_do(*watched, Situation::not_called);
  }
  comm_->wait_for_readers();  // hooks on the leaves may write to the shards
  tensors_->end_pass();
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
  const std::vector<bool> now = tensors_->requires_grad();
  if (now == agreed_) return;
  const auto changed = std::ranges::mismatch(now, agreed_).in1 - now.begin();
  // Other ranks may make another call: then the message says by this name what this one is for.
  const std::string call =
      "set_requires_grad() of " + tensors_->entries()[static_cast<size_t>(changed)].name;
  const Purpose purpose(call.c_str());
  std::vector<Trait> traits;
  for (const auto& entry : tensors_->entries())
    traits.push_back(
        {"parameter " + entry.name, entry.requires_grad ? "trainable" : "frozen", kFreezeTheSame});
  check_same_on_all_ranks(*comm_, traits, kName);
  agreed_ = now;
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
  for (const auto& hooked : hooked_)
    if (hooked->unit()) hooked->check_views();
}

void Sharding::begin(const std::string& function) {
  if (!calls_.empty() || in_backward() || summoned_) {
    throw std::logic_error(function + "(): called inside " +
                           (summoned_       ? "summon_full_params()"
                            : in_backward() ? "a backward pass"
                                            : "a module's call") +
                           "; call it between steps");
  }
  settle_broken_passes();
  check_views();
  check_parameters();
  for (const auto& unit : sharded_->units())
    unit->reshard();
  comm_->wait_for_readers();
  leaves_->take_data();
}

void Sharding::summon() {
  for (const auto& unit : sharded_->units())
    unit->unshard_async();
  for (const auto& unit : sharded_->units())
    unit->unshard();
  comm_->wait_for_readers();
  summoned_ = true;
}

void Sharding::end_summon() {
  summoned_ = false;
  for (const auto& hooked : hooked_)
    hooked->allow_writes();
  for (const auto& unit : sharded_->units())
    unit->reshard();
}

void Sharding::broadcast_buffers() {
  const Purpose purpose(".broadcast_buffers");
  broadcast_from_rank_0(*comm_, distinct_buffers(net_));
}

}  // namespace fsdp
